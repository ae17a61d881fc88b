"""What a run left in its folder, and listeners that stop a run, for all tests."""

from clare.contract.outcome import Stop, StopAtBatch, StopAtTask, events, outcome

__all__ = ["Stop", "StopAtBatch", "StopAtTask", "events", "outcome"]
