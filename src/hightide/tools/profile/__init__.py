"""Where the time of a step goes: every dispatch timed on the GPU, the host's work beside it, on one clock."""

from hightide.tools.profile.measure import profile, profile_file
from hightide.tools.profile.profile_data import Dispatched, Group, LevelProfile, TimedRun, UntimedRun
from hightide.tools.profile.profile_result import Profile

__all__ = [
    "Dispatched",
    "Group",
    "LevelProfile",
    "Profile",
    "TimedRun",
    "UntimedRun",
    "profile",
    "profile_file",
]
