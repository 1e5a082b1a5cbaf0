"""The keys of what ``gossamer simulate`` prints as JSON: programs read them, so they stay."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from gossamer.cli.simulate import simulate

# Each test runs a small experiment.
pytestmark = pytest.mark.slow

KEYS = {
    "flood --nodes 10 --events 5": """
        bytes config copies copies_per_delivery delivered digest duplicate expected fired
        good hops_max hops_mean latency_ms_p50 latency_ms_p99 messages missed notes
        receipts_complete replay seed spurious violations virtual_seconds
    """,
    "flood --nodes 10 --events 5 --full": """
        bytes config copies copies_per_delivery delivered deliveries digest duplicate
        expected fired good hops_max hops_mean latency_ms_p50 latency_ms_p99 loads messages
        missed notes publications receipts_complete replay seed spurious subscriptions
        violations virtual_seconds
    """,
    "interest --nodes 12 --topics 50 --subscriptions 5 --changes 2 --jobs 1": """
        barrier_ms bytes_amortised bytes_per_change bytes_per_change_names
        bytes_per_change_whole cold_start_bytes_per_node cold_start_s converged
        copies_per_node degree_max degree_mean diameter digest good hops_p50 hops_p99
        idle_bytes_per_s k memory_mb_per_million_pairs messages ms_p50 ms_p99 nodes replay
        seed start vertex_connectivity violations wall_seconds
    """,
    "interest --scenario leave --nodes 10": """
        demand digest figures good messages reasons replay scenario seed wall_seconds
    """,
    "skiplist --entries 30 --events 20": """
        bytes_per_entry_period churned compared_per_event converge_periods delivered digest
        duplicate entries entries_per_range events expected gap_load good hops
        hops_per_class join_hops levels link_error_by_level links_max messages
        messages_per_entry_period missed model noise noise_counts perfect reperfect_periods
        replay resent seed spurious violations virtual_s wall_seconds
    """,
    "skiplist --entries 20 --events 20 --compare-ranges": """
        bytes_per_entry_period churn delivered digest duplicate entries_per_range expected
        hops_mean kept_per_range missed ranges spurious width
    """,
    "tree --hosts 10 --measure 4s": """
        announced_mean area_join area_leave arity contacted_max contacted_mean
        copies_per_delivery degree degree_max delivered depth_max depth_mean dht digest
        duplicate expected good hosts invariants_looked is_tree key_bits links_max
        lookups_max lookups_mean messages missed replaced replay seconds_quiet seed
        simulated spurious violations wall_seconds
    """,
    "tree --hosts 12 --root-failure": """
        contacted digest good hosts links_changed missed rendezvous_degree_max
        rendezvous_links_changed rendezvous_rejoining replay seconds seed violations
        wall_seconds
    """,
    "tree --hosts 12 --merge": """
        digest good hosts log2_hosts messages messages_before replay rounds_ring rounds_tree
        seconds_ring seconds_tree seed violations wall_seconds
    """,
    "fuzz --seed 7 --episode 3": """
        counts episodes failures messages refused seconds seed
    """,
    "scenarios": """
        about config name
    """,
    "swarm --overlay flood --start 1000 --seeds 1 --jobs 1": """
        delivered digest duplicate expected fired good messages missed overlay replay seed
        spurious toml violations
    """,
    "swarm --overlay fabric --start 1000 --seeds 1 --jobs 1": """
        delivered digest duplicate expected fired good messages missed overlay replay seed
        spurious toml violations
    """,
    "swarm --overlay interest --start 1000 --seeds 1 --jobs 1": """
        changes digest fired good messages overlay replay seed settled_s toml violations
    """,
    "swarm --overlay skiplist --start 1000 --seeds 1 --jobs 1": """
        digest expected fired good messages missed overlay replay seed settled_s toml
        violations
    """,
    "swarm --overlay tree --start 1000 --seeds 1 --jobs 1": """
        delivered digest duplicate expected fired good messages missed overlay replay seed
        spurious toml violations
    """,
}


@pytest.mark.parametrize("command", KEYS)
def test_the_keys_stay(command: str) -> None:
    done = CliRunner().invoke(simulate, [*command.split(), "--json"], standalone_mode=False)
    assert done.exception is None
    assert sorted(json.loads(done.stdout.splitlines()[0])) == KEYS[command].split()
