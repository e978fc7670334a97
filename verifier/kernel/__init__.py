"""The language of programs: values, layouts, contracts, ranks, and the ops, all registered here."""

from shardproof.verifier.kernel import ops as ops
