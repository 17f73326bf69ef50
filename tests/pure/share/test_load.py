"""A shard loads lazily: raw bytes by key, folded at the end, and it is the same shard as if every record had been replayed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from holdfast.records.errors import Undecodable, UnknownVersion
from holdfast.records.share.codecs.codec import Codec, Kind, encode_key, value_encoder
from holdfast.records.share.keys import SharePartitionKey
from holdfast.records.share.replay import ShareState
from holdfast.records.share.values import Snapshot, Update, Value
from holdfast.runtime.errors import LoadFailed
from holdfast.share.decisions import ShareShard
from tests.configs import shard_config
from tests.shards import states_at, summarize
from tests.world.records import encode_record
from tests.world.samples import KEY, OTHER_KEY, batch
from tests.world.shard import LOG_START, World, load, without_counts

RawRecord = tuple[bytes, bytes | None]


def snapshot(epoch: int = 0, start_offset: int = 100) -> Snapshot:
    return Snapshot(epoch, 3, 0, start_offset, 0, 1, 1, (), 5, 3)


def update(*batches: tuple[int, int, int, int], leader_epoch: int = 5) -> Update:
    return Update(0, leader_epoch, -1, 7, tuple(batch(*fields) for fields in batches))


def states(shard: ShareShard) -> dict[SharePartitionKey, ShareState]:
    return states_at(shard, 0)


@pytest.mark.parametrize("codec", Codec)
def test_a_load_gives_the_state_that_replay_gave(codec: Codec) -> None:
    world = World(codec=codec, snapshot_update_records_per_snapshot=2)
    for key in (KEY, OTHER_KEY):
        world.initialize(3, 100, key)
        world.read(5, key)
        world.write(batch(100, 109, 2, 1), batch(120, 129, 0, 1), start_offset=105, key=key)
        world.write(batch(110, 119, 4, 1), delivery_complete_count=3, key=key)
    world.initialize(4, 7)
    world.delete(OTHER_KEY)
    world.initialize(0, 1, OTHER_KEY)
    loaded = world.loaded()
    assert without_counts(loaded.states()) == without_counts(world.states())
    assert loaded.shard.state.offsets.oldest() == world.shard.state.offsets.oldest()
    assert summarize(loaded.shard) == summarize(world.shard)


def test_records_of_a_share_partition_in_both_codecs_keep_their_order() -> None:
    log = [
        encode_record(Codec.KAFKA, KEY, snapshot()),
        encode_record(Codec.AVRO, KEY, update((100, 109, 0, 1))),
        encode_record(Codec.KAFKA, KEY, update((105, 109, 2, 1), leader_epoch=6)),
        encode_record(Codec.AVRO, KEY, update((100, 104, 0, 2), leader_epoch=7)),
    ]
    shard = load(shard_config(), log)
    batches = (batch(100, 104, 0, 2), batch(105, 109, 2, 1))
    assert states(shard) == {KEY: ShareState(0, 3, 7, 100, 7, 1, 1, batches, 7, 3, 3)}


@pytest.mark.parametrize("first", Codec)
@pytest.mark.parametrize("second", Codec)
@pytest.mark.parametrize("third", Codec)
def test_a_tombstone_in_one_codec_ends_what_another_wrote(first: Codec, second: Codec, third: Codec) -> None:
    log = [
        encode_record(first, KEY, snapshot()),
        encode_record(first, KEY, update()),
        encode_record(second, KEY, None),
    ]
    assert states(load(shard_config(), log)) == {}
    shard = load(shard_config(), [*log, encode_record(third, KEY, snapshot(start_offset=5))])
    assert states(shard) == {KEY: ShareState(*snapshot(start_offset=5), 0)}
    assert shard.state.offsets.oldest() == (KEY, LOG_START + 3)


def test_a_snapshot_replaces_what_came_before_it_unread() -> None:
    broken = value_encoder(Codec.AVRO)(update((1, 2, 0, 1)))[:-1]
    log: list[RawRecord] = [
        (encode_key(Codec.AVRO, KEY, Kind.UPDATE), broken),
        encode_record(Codec.AVRO, KEY, snapshot()),
    ]
    assert states(load(shard_config(), log)) == {KEY: ShareState(*snapshot(), 0)}


@pytest.mark.parametrize("codec", Codec)
def test_an_update_without_its_base_fails_the_load_with_offset_and_key(codec: Codec) -> None:
    log = [
        encode_record(codec, OTHER_KEY, snapshot()),
        encode_record(codec, KEY, update()),
        encode_record(codec, KEY, update()),
    ]
    with pytest.raises(LoadFailed, match=f"offset {LOG_START + 1}, share partition g1:AAECAwQFBgcICQoLDA0ODw:7: .*cut"):
        load(shard_config(), log)


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("end", [snapshot(), None])
def test_update_without_base_is_harmless_after_a_snapshot_or_tombstone(codec: Codec, end: Snapshot | None) -> None:
    log = [encode_record(codec, KEY, update()), encode_record(codec, KEY, end)]
    expected = {} if end is None else {KEY: ShareState(*end, 0)}
    assert states(load(shard_config(), log)) == expected


@pytest.mark.parametrize("codec", Codec)
def test_an_update_after_a_tombstone_has_no_base_either(codec: Codec) -> None:
    log = [encode_record(codec, KEY, value) for value in (snapshot(), None, update())]
    with pytest.raises(LoadFailed, match=f"offset {LOG_START + 2}"):
        load(shard_config(), log)


@pytest.mark.parametrize("is_base_broken", [False, True])
def test_records_that_an_admin_accepted_to_lose_are_left_out(is_base_broken: bool) -> None:
    key, value = encode_record(Codec.AVRO, KEY, snapshot())
    assert value is not None
    shard = ShareShard(shard_config())
    if is_base_broken:
        shard.load_record(key, value[:-1], 1)
    shard.load_record(*encode_record(Codec.AVRO, KEY, update()), 2)
    shard.load_record(*encode_record(Codec.AVRO, OTHER_KEY, snapshot()), 3)
    broken_update = value_encoder(Codec.AVRO)(update((1, 2, 0, 1)))[:-1]
    shard.load_record(encode_key(Codec.AVRO, OTHER_KEY, Kind.UPDATE), broken_update, 4)
    shard.on_log_accepted()
    assert not shard.fold_loaded(lambda: True)
    assert shard.fold_loaded(lambda: False)
    assert states(shard) == {OTHER_KEY: ShareState(*snapshot(), 0)}
    assert shard.load.left_out_records == 2 + is_base_broken
    assert shard.state.offsets.oldest() == (OTHER_KEY, 3)


def test_records_after_an_acceptance_are_not_accepted() -> None:
    shard = ShareShard(shard_config())
    shard.load_record(*encode_record(Codec.AVRO, KEY, update()), 1)
    shard.on_log_accepted()
    shard.load_record(*encode_record(Codec.AVRO, KEY, update()), 2)
    with pytest.raises(LoadFailed, match="offset 2"):
        shard.fold_loaded(lambda: False)


def test_an_undecodable_value_fails_the_load_with_offset_and_key() -> None:
    key, value = encode_record(Codec.AVRO, KEY, snapshot())
    assert value is not None
    with pytest.raises(
        LoadFailed, match=f"^offset {LOG_START}, share partition g1:AAECAwQFBgcICQoLDA0ODw:7: The value"
    ):
        load(shard_config(), [(key, value[:-1])])


def test_an_unknown_value_version_fails_the_load_by_name() -> None:
    key, value = encode_record(Codec.KAFKA, KEY, snapshot())
    assert value is not None
    with pytest.raises(LoadFailed, match=rf"offset {LOG_START}, share partition .*version 9 is unknown, upgrade"):
        load(shard_config(), [(key, b"\x00\x09" + value[2:])])


def test_bytes_that_no_record_begins_with_are_refused_as_they_come() -> None:
    key, value = encode_record(Codec.AVRO, KEY, snapshot())
    assert value is not None
    shard = ShareShard(shard_config())
    with pytest.raises(UnknownVersion):
        shard.load_record(key, value[:2] + bytes(8) + value[10:], LOG_START)
    with pytest.raises(Undecodable):
        shard.load_record(b"\x00", value, LOG_START)


def test_meaningless_records_are_counted_and_warned_about_once() -> None:
    null_update = encode_key(Codec.KAFKA, KEY, Kind.UPDATE), None
    log: list[RawRecord] = [
        encode_record(Codec.KAFKA, KEY, snapshot()),
        (b"\x00\x63later", b"?"),
        (b"\x00\x63later", None),
        null_update,
    ]
    with capture_logs() as lines:
        shard = load(shard_config(), log)
    assert states(shard) == {KEY: ShareState(*snapshot(), 0)}
    assert shard.load.skipped_records == 3
    assert [(line["log_level"], line["first_offset"]) for line in lines] == [
        ("warning", LOG_START + 1),
        ("warning", LOG_START + 3),
    ]


def test_bytes_behind_a_kafka_value_are_ignored_and_counted() -> None:
    key, value = encode_record(Codec.KAFKA, KEY, snapshot())
    assert value is not None
    shard = load(shard_config(), [(key, value + b"??")])
    assert states(shard) == {KEY: ShareState(*snapshot(), 0)}
    assert shard.load.values_with_trailing_bytes == 1


def test_the_fold_goes_on_where_its_time_was_up() -> None:
    shard = ShareShard(shard_config())
    keys = [KEY._replace(partition=partition) for partition in range(5)]
    for offset, key in enumerate(keys):
        shard.load_record(*encode_record(Codec.AVRO, key, snapshot()), offset)
    seen = []
    calls = iter([False, True, True, False, True])
    while not shard.fold_loaded(lambda: next(calls)):
        seen.append(len(states(shard)))
    assert seen == [2, 3]
    assert set(states(shard)) == set(keys)


def test_records_after_a_fold_go_on_from_it_and_none_is_decoded_twice() -> None:
    def raw(key: SharePartitionKey, value: Value) -> RawRecord:
        raw_key, raw_value = encode_record(Codec.KAFKA, key, value)
        return raw_key, (raw_value or b"") + b"?"  # which is counted when it is decoded

    shard = load(shard_config(), [raw(KEY, snapshot()), raw(KEY, update()), raw(KEY, update())])
    assert shard.load.values_with_trailing_bytes == 3
    shard.load_record(*raw(KEY, update((101, 102, 0, 1))), LOG_START + 3)
    shard.load_record(*raw(OTHER_KEY, snapshot()), LOG_START + 4)
    assert not shard.fold_loaded(lambda: True)
    assert shard.fold_loaded(lambda: True)
    assert shard.load.values_with_trailing_bytes == 5
    assert {key: state.update_count for key, state in states(shard).items()} == {KEY: 3, OTHER_KEY: 0}


@pytest.mark.parametrize("lost", ["update", "snapshot"])
def test_share_partition_back_after_left_out_records_still_holds_pruning(lost: str) -> None:
    key, value = encode_record(Codec.AVRO, KEY, update() if lost == "update" else snapshot())
    assert value is not None
    shard = ShareShard(shard_config())
    shard.load_record(key, value if lost == "update" else value[:-1], 1)
    shard.on_log_accepted()
    shard.load_record(*encode_record(Codec.AVRO, OTHER_KEY, snapshot()), 2)
    assert not shard.load.is_folded
    fold = shard.load.fold(shard.state.newest, lambda: False)
    unfolded = next(fold)
    shard.load_record(*encode_record(Codec.AVRO, KEY, snapshot()), 3)
    for found in (unfolded, *fold):
        shard.state.put_loaded(*found)
    assert states(shard) == dict.fromkeys((KEY, OTHER_KEY), ShareState(*snapshot(), 0))
    assert list(shard.state.offsets.below(10)) == [OTHER_KEY, KEY]


def test_snapshot_during_a_waiting_tombstone_still_holds_pruning() -> None:
    shard = ShareShard(shard_config())
    assert shard.fold_loaded(lambda: True)  # from here on tombstones are folded, too
    shard.load_record(*encode_record(Codec.AVRO, KEY, snapshot()), 1)
    shard.load_record(*encode_record(Codec.AVRO, OTHER_KEY, snapshot()), 2)
    shard.load_record(*encode_record(Codec.AVRO, OTHER_KEY, None), 3)
    assert not shard.fold_loaded(lambda: True)
    shard.load_record(*encode_record(Codec.AVRO, OTHER_KEY, snapshot(start_offset=5)), 4)
    assert shard.fold_loaded(lambda: False)
    assert states(shard)[OTHER_KEY] == ShareState(*snapshot(start_offset=5), 0)
    assert shard.state.offsets.newest_snapshot_offset(OTHER_KEY) == 4


_KEYS = [KEY, OTHER_KEY, KEY._replace(partition=3)]
_VALUES: list[Value] = [snapshot(), update((100, 109, 0, 1)), update((105, 120, 2, 2), leader_epoch=7), None]


@given(
    log=st.lists(st.tuples(st.sampled_from(_KEYS), st.sampled_from(Codec), st.sampled_from(_VALUES)), max_size=20),
    folds=st.dictionaries(st.integers(0, 20), st.integers(1, 3)),
)
def test_load_that_folds_often_equals_one_that_folds_at_the_end(
    log: list[tuple[SharePartitionKey, Codec, Value]], folds: dict[int, int]
) -> None:
    live: set[SharePartitionKey] = set()
    records = []
    for key, codec, value in log:
        if isinstance(value, Update) and key not in live:
            value = snapshot()
        (live.discard if value is None else live.add)(key)
        records.append(encode_record(codec, key, value))
    whole, sliced = load(shard_config(), records), ShareShard(shard_config())
    for offset, record in enumerate(records, start=LOG_START):
        for _ in range(folds.get(offset - LOG_START, 0)):
            sliced.fold_loaded(lambda: True)
        sliced.load_record(*record, offset)
    assert sliced.fold_loaded(lambda: False)
    assert (states(sliced), summarize(sliced)) == (states(whole), summarize(whole))
    assert list(sliced.state.offsets.below(2 * LOG_START)) == list(whole.state.offsets.below(2 * LOG_START))


def test_an_empty_log_is_loaded_at_once() -> None:
    shard = ShareShard(shard_config())
    assert shard.fold_loaded(lambda: True)
    assert states(shard) == {}


def test_loaded_state_cannot_be_reverted() -> None:
    shard = load(shard_config(), [encode_record(Codec.AVRO, KEY, snapshot())])
    shard.revert(0)
    assert states(shard) == {KEY: ShareState(*snapshot(), 0)}


@pytest.mark.parametrize("updates", [0, 1, 3])
def test_after_a_load_the_update_count_is_what_the_log_shows(updates: int) -> None:
    values: list[Value] = [snapshot(), *[update()] * updates]
    log = [encode_record(Codec.AVRO, KEY, value) for value in values]
    assert states(load(shard_config(), log))[KEY].update_count == updates
