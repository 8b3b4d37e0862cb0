"""What providers tell us of mails: their posts, verified and read into one vocabulary."""
