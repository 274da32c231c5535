"""Where the time of a step goes: every dispatch timed on the GPU, the host's work beside it, on one clock."""

from hightide.profile.measure import profile, profile_file
from hightide.profile.report import Dispatched, Group, LevelProfile, Profile, Run

__all__ = ["Dispatched", "Group", "LevelProfile", "Profile", "Run", "profile", "profile_file"]
