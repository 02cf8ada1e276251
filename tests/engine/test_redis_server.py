"""Which servers can hold a queue, how durable their settings are, and how others are refused."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlane import BadValue, Queue, StoreError, StoreUnfit, Unknown
from fairlane.engine import open_engine
from fairlane.engine.redis import server as fitness
from fairlane.engine.redis.scripts import SCHEMA
from fairlane.engine.redis.server import ServerInfo
from fairlane.engine.redis.url import parse_url
from fairlane.transfer import move
from tests.servers import redis
from tests.servers.redis import Server, fresh_queue
from tests.transfer.test_transfer import contents_of, fill

from .conftest import url_of


@pytest.fixture(scope="module", params=redis.PRODUCTS)
def own(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server whose settings a test may change."""
    server = Server(request.param, "--appendonly", "yes", port=redis.free_port())
    yield server
    server.remove()


def configure(server: Server, **settings: str) -> None:
    with server.client() as client:
        for name, value in settings.items():
            client.config_set(name.replace("_", "-"), value)


def test_a_url_says_where_and_which_queue() -> None:
    url = parse_url("rediss://ada:s%40crt@example.org:6380/3?queue=invoices&ssl_ca_certs=/ca.pem")
    assert url.settings == {
        "host": "example.org", "port": 6380, "db": 3, "username": "ada", "password": "s@crt", "ssl_ca_certs": "/ca.pem",
    }  # fmt: skip
    assert (url.prefix, url.is_encrypted, url.socket_path) == ("{fairlane:invoices}:", True, None)
    assert "s%40crt" not in url.display
    assert "example.org" in url.display
    assert parse_url("valkey://").settings == {"host": "localhost", "port": 6379, "db": 0}
    assert parse_url("valkey+unix:///run/v.sock?db=2").socket_path == "/run/v.sock"
    assert parse_url("valkeys://h").is_encrypted


@pytest.mark.parametrize(
    "url",
    [
        "redis://h/x", "redis://h?queue=", "redis://h?queue=a{b}", "redis://h?queue=a&queue=b", "redis://h?color=red", "redis://h:x/",
        "redis+unix://", "redis+unix://host/x", "redis://h?ssl_ca_certs=x", "redis://h?queue=" + "x" * 65,
    ],
)  # fmt: skip
def test_a_url_that_cannot_be_is_refused_before_anything_is_opened(url: str) -> None:
    with pytest.raises(BadValue):
        open_engine(url)


def test_a_password_is_never_shown() -> None:
    with pytest.raises(BadValue) as refused:
        open_engine("redis://ada:geheim@localhost?color=red")
    assert "geheim" not in str(refused.value)
    with pytest.raises(StoreError) as away:
        open_engine(f"redis://ada:geheim@127.0.0.1:{redis.free_port()}")
    assert "geheim" not in str(away.value)
    assert "geheim" not in repr(away.value.__cause__)


def test_an_unreachable_server_is_an_error_at_once(own: Server) -> None:
    with pytest.raises(StoreError, match=r"cannot be reached .* check that it runs, the host and port of the URL"):
        open_engine(f"redis://127.0.0.1:{redis.free_port()}")
    with pytest.raises(StoreError, match="cannot be reached"):
        open_engine("redis://no-such-host.invalid")
    with pytest.raises(StoreError, match="cannot be reached"):
        open_engine(f"redis+unix://{own.folder}/nothing")


def test_a_wrong_password_and_a_missing_one_say_what_to_do(own: Server) -> None:
    with own.client() as client:
        client.config_set("requirepass", "right")
        try:
            for url in (f"redis://:wrong@127.0.0.1:{own.port}", f"redis://127.0.0.1:{own.port}"):
                with pytest.raises(StoreUnfit, match=r"refuses the user or password .* redis://user:password@host"):
                    open_engine(url)
            open_engine(f"redis://:right@127.0.0.1:{own.port}?queue={fresh_queue()}").close()
        finally:
            client.config_set("requirepass", "")


def test_the_error_for_a_user_without_rights_names_the_rights_it_needs(own: Server) -> None:
    with own.client() as client:
        client.acl_setuser("poor", enabled=True, passwords=["+p"], commands=["+@read"], keys=["*"])
        with pytest.raises(StoreUnfit, match="does not allow its user what a queue needs"):
            open_engine(f"redis://poor:p@127.0.0.1:{own.port}?queue={fresh_queue()}")
        queue = fresh_queue()
        keys = ["{fairlane:" + queue + "}:*"]
        client.acl_setuser("modest", enabled=True, passwords=["+p"], commands=["+@all", "-@dangerous"], keys=keys)
        engine = open_engine(f"redis://modest:p@127.0.0.1:{own.port}?queue={queue}")  # no CONFIG, no INFO, no channels
        engine.check("ada", 1000)
        assert engine.wait(0.01) is False
        assert engine.durability.startswith("not known: ")
        engine.close()


@pytest.mark.parametrize("policy", ["allkeys-lru", "allkeys-random", "allkeys-lfu"])
def test_a_policy_that_drops_keys_is_refused_by_name(own: Server, policy: str) -> None:
    configure(own, maxmemory_policy=policy)
    try:
        with pytest.raises(StoreUnfit, match=rf"maxmemory-policy {policy}, .* CONFIG SET maxmemory-policy noeviction"):
            open_engine(own.url())
    finally:
        configure(own, maxmemory_policy="noeviction")
    configure(own, maxmemory_policy="volatile-lru")  # no key of a queue ever expires
    open_engine(own.url()).close()
    configure(own, maxmemory_policy="noeviction")


@pytest.mark.parametrize(
    ("synced", "rewriting", "sentence"),
    [
        ("always", "no", "durable: acknowledged after the data is on disk"),
        ("always", "yes", "not durable while the server rewrites"),
        ("everysec", "no", "not durable: a crash may lose about the last second"),
        ("no", "no", "not durable: a crash of the machine"),
    ],
)
def test_what_an_acknowledgement_is_worth(own: Server, synced: str, rewriting: str, sentence: str) -> None:
    configure(own, appendfsync=synced, no_appendfsync_on_rewrite=rewriting)
    with Queue(own.url()) as queue:
        assert queue.engine.durability.startswith(sentence)
    configure(own, appendfsync="everysec", no_appendfsync_on_rewrite="no")


def test_a_server_without_a_file_is_not_durable() -> None:
    for product in redis.PRODUCTS:
        with Queue(redis.shared(product).url()) as queue:
            assert queue.engine.durability.startswith("not durable: what came after the server's last snapshot is gone")


def test_a_server_that_keeps_its_settings_to_itself_is_not_called_durable() -> None:
    assert fitness.durability(ServerInfo("Redis", "7.0.1", {"aof_enabled": "1"})).startswith(
        "not known: the server writes to a file"
    )
    assert fitness.durability(ServerInfo()).startswith("not known")


@pytest.mark.parametrize(
    ("info", "message"),
    [
        (ServerInfo("Redis", "6.0.16"), r"is Redis 6.0.16; 6.2 or newer is needed: upgrade it"),
        (ServerInfo("Valkey", "7.1.0"), r"is Valkey 7.1.0; 7.2 or newer"),
        (ServerInfo("Redis", "7.0.1", {"redis_mode": "sentinel"}), "is a sentinel"),
    ],
)
def test_servers_that_are_too_old_or_hold_nothing_are_refused(info: ServerInfo, message: str) -> None:
    with pytest.raises(StoreUnfit, match=message):
        fitness.refuse_unfit(info, "redis://h")
    fitness.refuse_unfit(ServerInfo("Redis", "6.2.0"), "redis://h")
    fitness.refuse_unfit(ServerInfo("Valkey", "10.0.0"), "redis://h")
    fitness.refuse_unfit(ServerInfo(), "redis://h")  # it does not say


def test_a_part_of_a_cluster_is_refused() -> None:
    for product in redis.PRODUCTS:
        server = Server(product, "--cluster-enabled", "yes", "--cluster-port", str(redis.free_port()), port=redis.free_port())
        with pytest.raises(StoreUnfit, match="part of a cluster, which is not supported"):
            open_engine(server.url())
        server.remove()


def test_a_replica_is_refused(own: Server) -> None:
    with own.client() as client:
        client.replicaof("127.0.0.1", str(redis.free_port()))
        try:
            with pytest.raises(StoreUnfit, match="is a replica, which cannot be written; give the URL of its primary"):
                open_engine(own.url())
        finally:
            client.replicaof("NO", "ONE")


def test_a_server_that_becomes_a_replica_says_so(own: Server) -> None:
    with Queue(own.url()) as queue, own.client() as client:
        client.replicaof("127.0.0.1", str(redis.free_port()))
        try:
            with pytest.raises(StoreError, match="is a replica"):
                queue.submit("ada")
        finally:
            client.replicaof("NO", "ONE")
        queue.submit("ada")


def test_a_queue_that_is_not_there_is_not_made_by_a_look(own: Server) -> None:
    with pytest.raises(Unknown, match="there is no queue 'nothing' at"):
        Queue(own.url("nothing"), create=False)
    with own.client() as client:
        assert client.exists("{fairlane:nothing}:queue") == 0


def test_a_queue_of_a_newer_form_is_left_alone(own: Server) -> None:
    name = fresh_queue()
    with Queue(own.url(name)) as queue, own.client() as client:
        client.set(f"{{fairlane:{name}}}:queue", bytes([SCHEMA.version + 1]))
        with pytest.raises(StoreUnfit, match="made by a newer Fairlane"):
            queue.submit("ada")
        with pytest.raises(StoreUnfit, match="made by a newer Fairlane"):
            open_engine(own.url(name))


OLDER = {  # what makes the queue's own record
    1: "local old = {1} for at = 2, 47 do old[at] = 0 end return cmsgpack.pack(old)",
    2: "return struct.pack('>B' .. string.rep('i7', 38), 2, unpack(cjson.decode('[' .. string.rep('0,', 37) .. '0]')))",
}


@pytest.mark.parametrize("form", OLDER)
def test_a_queue_of_an_older_form_is_left_alone(own: Server, form: int) -> None:
    name = fresh_queue()
    with own.client() as client:
        key = f"{{fairlane:{name}}}:queue"
        client.eval(f"redis.call('SET', KEYS[1], (function() {OLDER[form]} end)())", 1, key)
        before = client.dump(key)
        with pytest.raises(StoreUnfit, match=rf"made by an older Fairlane \(form {form}\)"):
            open_engine(own.url(name))
        assert client.dump(key) == before


def test_two_queues_on_one_server_do_not_meet(own: Server) -> None:
    with Queue(own.url("one")) as one, Queue(own.url("two")) as two:
        one.submit("ada", key="k")
        assert two.look("ada").waiting == 0
        assert two.submit("ada", key="k").counter == 0


def test_without_the_packages_the_error_says_what_to_install() -> None:
    for absent in ("redis", "hiredis"):
        program = f"import sys; sys.modules[{absent!r}] = None; from fairlane import Queue; Queue('redis://localhost')"
        ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
        assert 'pip install ".[redis]"' in ran.stderr.splitlines()[-1]


def test_an_examination_says_what_to_do_about_a_server(own: Server) -> None:
    def levels() -> dict[str, str]:
        return {finding.name: finding.level for finding in queue.engine.diagnose()}

    with Queue(own.url()) as queue:
        configure(own, appendfsync="always", no_appendfsync_on_rewrite="no", maxmemory_policy="noeviction")
        assert levels() == dict.fromkeys(("version", "durability", "clock", "eviction", "room"), "fine")
        configure(own, appendfsync="everysec")
        assert levels()["durability"] == "warning"
        configure(own, appendfsync="no", maxmemory_policy="allkeys-lru")
        assert (levels()["durability"], levels()["eviction"]) == ("bad", "bad")
        configure(own, appendfsync="always", maxmemory_policy="noeviction", maxmemory="1")
        assert levels()["room"] == "warning"
        configure(own, maxmemory="0")


def test_a_queue_moves_from_server_to_server(tmp_path: Path) -> None:
    home = f"sqlite:///{tmp_path}/home.db"
    fill(home, 700)
    before, at = contents_of(home), home
    for target in (*(url_of(name, tmp_path, 1) for name in ("redis", "postgres", "valkey")), f"sqlite:///{tmp_path}/new.db"):
        assert move(at, target).documents == 700
        assert contents_of(target) == before
        at = target
