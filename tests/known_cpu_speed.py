"""A fixed CPU speed, so that tests of plans measure nothing."""

from crossling.planning.cpu_speed import CpuSpeed

SPEED = CpuSpeed(flops=1e10, parameters=1e9)
