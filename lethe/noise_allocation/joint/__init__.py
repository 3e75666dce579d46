"""Noise of least harm when only the last iterate is released: for one position of the record, for pass ends, for any position in a pass."""

from lethe.noise_allocation.joint.cyclic import joint_cyclic
from lethe.noise_allocation.joint.passes import joint_passes
from lethe.noise_allocation.joint.position import JointSchedule, Regime, joint_schedule, joint_schedule_reset, regime
from lethe.noise_allocation.joint.result import CyclicJoint
