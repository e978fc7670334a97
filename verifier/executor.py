"""Symbolic execution of class programs."""

from shardproof.compat.executor import DeviceState, MultiDeviceExecutor

__all__ = ["DeviceState", "MultiDeviceExecutor"]
