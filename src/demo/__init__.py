"""A sample campaign over real SMTP into a catcher that misbehaves on purpose."""
