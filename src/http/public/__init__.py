"""What is open to everybody: pages behind links in mails, and the links that tell."""
