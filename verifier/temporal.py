"""Orders of class programs. The checks are those of `shardproof.verifier.order`."""

from shardproof.compat.order import RaceReport, RaceType, TemporalVerifyResult, verify_temporal

__all__ = ["RaceReport", "RaceType", "TemporalVerifyResult", "verify_temporal"]
