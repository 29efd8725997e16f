"""What `softbench doctor` looks at: what is installed, what the machine has, whether models are computed rightly."""

from softbench.doctor.environment import Device, Environment, environment
from softbench.doctor.self_test import Check, self_test

__all__ = ["Check", "Device", "Environment", "environment", "self_test"]
