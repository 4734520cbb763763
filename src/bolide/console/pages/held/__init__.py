"""Pages about messages that a broker holds back."""
