"""What is known of values of one program without running it."""
