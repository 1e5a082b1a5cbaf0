from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from gossamer.sim import Config, ConfigError, simulate
from gossamer.sim.config import from_toml, load, shipped, to_toml
from gossamer.sim.swarm import draw_config


@pytest.mark.slow
@pytest.mark.parametrize("name", ["calm", "crash-restart", "lossy", "partition", "swizzle"])
def test_shipped_scenarios_run(name: str) -> None:
    scenario = load(name)
    assert scenario.about
    outcome = simulate(scenario.config)
    assert outcome.violations == []
    assert outcome.expected > 50
    # A disk that is full refuses publications, and those have no receipt to wait for.
    accepted = scenario.config.events - outcome.fired.get("refused", 0)
    assert outcome.receipts_complete >= 0.9 * accepted
    wanted = {
        "lossy": ("loss", "delay", "breaks", "churn"),
        "partition": ("partition", "told down", "told up"),
        "crash-restart": ("crash", "restart", "pause", "disk full", "torn"),
        "swizzle": ("clog", "released", "told full"),
    }
    assert all(outcome.fired.get(fault, 0) > 0 for fault in wanted.get(name, ())), outcome.fired


def test_all_that_are_shipped_are_listed() -> None:
    assert list(shipped()) == ["calm", "crash-restart", "lossy", "partition", "swizzle"]


def test_a_configuration_prints_itself_and_reads_itself_back() -> None:
    for config in [
        Config(),
        *(scenario.config for scenario in shipped().values()),
        *map(draw_config, range(100)),
    ]:
        assert from_toml(to_toml(config), "printed").config == config


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[network]\nlos = 0.1", r"unknown key in \[network\] 'los'; did you mean 'loss'"),
        ("[netwrk]\nloss = 0.1", "unknown section or key 'netwrk'; did you mean 'network'"),
        ("loss = 0.1", "unknown section or key 'loss'"),
        ("network = 3", "network must be a table"),
        ("[network]\nloss = 'much'", "Expected `float`"),
        ("[network]\nloss = 2.0", "loss is 2.0; it must be from 0.0 to 0.9"),
        ("[network]\nlatency = 'warp'", "unknown latency 'warp'"),
        ("[fabric]\nnodes = 0", "nodes is 0; it must be from 1"),
        ("[fabric]\noverlay = 'osmosis'", "unknown overlay 'osmosis'; known: flood"),
        ("[workload]\ninterval = '5'", "interval: '5' is no duration"),
        ("[[fault]]\nkind = 'crush'\nat = '1s'\nlasts = '1s'", "Invalid value 'crush'"),
        ("[[fault]]\nkind = 'crash'\nat = '1s'", "missing required field `lasts`"),
        ("[[fault]]\nkind = 'crash'\nat = '1s'\nlasts = '1s'\nnode = 3", "unknown field `node`"),
        (
            "[[fault]]\nkind = 'crash'\nat = 'soon'\nlasts = '1s'",
            "fault 1: at: 'soon' is no duration",
        ),
        (
            "[[fault]]\nkind = 'crash'\nat = '1s'\nlasts = '1s'\nnodes = [200]",
            "there is no node 200",
        ),
        ("[[fault]]\nkind = 'pause'\nat = '1s'\nlasts = '1s'\nshare = 0.0", "share is 0.0"),
        ("[network\nloss = 0.1", "line 1"),
    ],
)
def test_a_bad_scenario_says_where_and_why(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        from_toml(text, "bad.toml")
    assert "bad.toml" in str(caught.value)


def test_a_scenario_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="neither a file nor one of calm, crash-restart"):
        load(str(tmp_path / "none.toml"))


def test_a_scenario_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('about = "Mine."\n[fabric]\nnodes = 3\n')
    scenario = load(str(path))
    assert (scenario.name, scenario.about) == ("mine", "Mine.")
    assert scenario.config == msgspec.structs.replace(Config(), nodes=3)
