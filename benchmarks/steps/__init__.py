"""Whole training steps, written op by op for one device and for every rank."""
