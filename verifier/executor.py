"""Symbolic execution of class programs."""

from verifier.face.executor import DeviceState, MultiDeviceExecutor

__all__ = ["DeviceState", "MultiDeviceExecutor"]
