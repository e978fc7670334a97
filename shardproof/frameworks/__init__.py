"""What training frameworks build, as the steps that `check` compares. Each file here is copied
beside a run and imported from there, so it imports nothing of this project."""
