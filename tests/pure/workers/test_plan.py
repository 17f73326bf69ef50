"""What each worker has of its own."""

from __future__ import annotations

import pytest

from holdfast.daemon.settings.file_env_flags import ConfigError, cluster_wide_name, with_flags
from holdfast.daemon.settings.models import Settings
from holdfast.node_settings import SETTINGS, load_settings
from holdfast.workers.plan import PlanRefused, plan_workers


def settings(**flags: object) -> Settings:
    named = {name.replace("__", "."): value for name, value in flags.items()}
    return load_settings(flags={"kafka.bootstrap.servers": "a:1", "membership": "group", "workers": 2} | named).settings


def no_ports(host: str, count: int) -> list[int]:
    raise AssertionError("a port is chosen although `listen` has one")


def test_workers_have_the_next_node_ids_and_the_next_ports() -> None:
    first, second = plan_workers(settings(node_id=10, listen="127.0.0.1:9492"), no_ports)
    assert (first.node_id, first.address) == (10, "127.0.0.1:9493")
    assert first.settings == {
        "node_id": 10,
        "listen": "127.0.0.1:9493",
        "membership": "group",
        "log_format": "json",
        "http.listen": "127.0.0.1:9593",
        "http.port.may.move": True,
    }
    assert second.settings["http.listen"] == "127.0.0.1:9594"
    assert (second.node_id, second.address) == (11, "127.0.0.1:9494")


def test_where_all_addresses_are_listened_on_each_worker_advertises_its_own_port_and_is_reached_on_loopback() -> None:
    planned = plan_workers(
        settings(
            listen="0.0.0.0:9492",
            advertised_listener="kelp.example:19492",
            group__instance__id="kelp",
            listener__insecure=True,
        ),
        no_ports,
    )
    assert [worker.address for worker in planned] == ["127.0.0.1:9493", "127.0.0.1:9494"]
    own = [worker.settings for worker in planned]
    assert [each["listen"] for each in own] == ["0.0.0.0:9493", "0.0.0.0:9494"]
    assert [each["advertised_listener"] for each in own] == ["kelp.example:19493", "kelp.example:19494"]
    assert [each["group.instance.id"] for each in own] == ["kelp-1", "kelp-2"]


@pytest.mark.parametrize(("listen", "own"), [("", [None, None]), ("[::1]:0", ["[::1]:0"] * 2)])
def test_workers_have_no_http_port_or_any_as_the_host_has(listen: str, own: list[str | None]) -> None:
    planned = plan_workers(settings(http__listen=listen), no_ports)
    assert [worker.settings.get("http.listen") for worker in planned] == own


def test_http_ports_that_were_set_must_be_had() -> None:
    planned = plan_workers(settings(http__listen="127.0.0.1:9592"), no_ports)
    assert [worker.settings["http.port.may.move"] for worker in planned] == [False, False]


def test_port_0_has_each_worker_take_a_free_one() -> None:
    planned = plan_workers(settings(listen="[::1]:0", workers=3), lambda host, count: [7, 5, 6][:count])
    assert [worker.address for worker in planned] == ["[::1]:7", "[::1]:5", "[::1]:6"]


@pytest.mark.parametrize("port", [65_533, 65_535])
def test_ports_that_do_not_exist_are_refused_by_the_setting(port: int) -> None:
    with pytest.raises(PlanRefused, match=f"listen has port {port}, .* give it one of at most 65532"):
        plan_workers(settings(listen=f"127.0.0.1:{port}", workers=3), no_ports)
    with pytest.raises(PlanRefused, match=f"http.listen has port {port}"):
        plan_workers(settings(http__listen=f"127.0.0.1:{port}", workers=3), no_ports)
    with pytest.raises(PlanRefused, match="advertised_listener has port"):
        plan_workers(settings(listen="127.0.0.1:1", advertised_listener=f"a:{port}", workers=3), no_ports)


def test_node_ids_that_do_not_exist_are_refused_by_the_setting() -> None:
    with pytest.raises(
        PlanRefused, match=r"node_id is 2147483647, .* up to 2147483648; give it one of at most 2147483646"
    ):
        plan_workers(settings(node_id=2**31 - 1), no_ports)
    assert plan_workers(settings(node_id=2**31 - 2), no_ports)[-1].node_id == 2**31 - 1


def test_workers_divide_the_log_and_are_no_static_nodes() -> None:
    with pytest.raises(
        ConfigError, match=r"workers is 2 and membership static, .* set membership to group, .* or workers to 1"
    ):
        settings(membership="static")
    assert settings(membership="static", workers=1).host.workers == 1


def test_the_number_of_workers_is_no_setting_of_all_nodes() -> None:
    with pytest.raises(ConfigError, match="workers cannot be set for all nodes: each host has a number of its own"):
        cluster_wide_name("workers", SETTINGS)


def test_what_is_a_workers_own_wins_over_every_spelling_of_the_flag() -> None:
    given = {"listener.listen": "a:1", "share.node_id": "7", "gateway.http.listen": "a:2", "log_level": "debug"}
    own = {"listen": "127.0.0.1:2", "http.listen": "127.0.0.1:3", "node_id": 8}
    merged = with_flags(given, own, SETTINGS)
    assert merged == {"log_level": "debug"} | own
    assert load_settings(flags=merged | {"kafka.bootstrap.servers": "a:1"}).settings.node_id == 8
