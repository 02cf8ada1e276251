"""The chart as helm renders it: sound for helm, for the schemas of Kubernetes and by the documentation of KEDA."""

from __future__ import annotations

import json
import re
import subprocess
from functools import cache
from typing import Any
from urllib.parse import parse_qs, unquote_plus, urlsplit

import kubernetes_validate
import pytest
import yaml

from fairlane.api.app import describe

from .deploy_files import CHART, program

Document = dict[str, Any]

SETS: dict[str, Document] = {
    "defaults": {},
    "files on S3": {"files": {"location": "s3://bucket/documents", "environmentSecret": "s3-credentials"}},
    "a claim that exists": {"files": {"volume": {"existingClaim": "shared"}}},
    "a storage class": {"files": {"volume": {"storageClass": "nfs", "accessModes": ["ReadWriteOnce"], "size": "5Gi"}}},
    "no worker": {"workers": {"extract": None}},
    "no budgets and no options": {"podDisruptionBudget": {"enabled": False}, "service": {"arguments": []}},
    "everything": {
        "image": {"repository": "registry.example.com/fairlane", "tag": "2", "pullPolicy": "Always"},
        "imagePullSecrets": [{"name": "registry"}],
        "encryption": {"secret": "document-keys", "key": "current"},
        "environment": {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318", "OTEL_BSP_MAX_QUEUE_SIZE": 1_000_000},
        "service": {"port": 8080, "replicas": 3, "trustedProxies": ["10.0.0.0/8"], "preStopSeconds": 10},
        "workers": {
            "extract": {"autoscaling": {"enabled": True, "minReplicas": 0}},
            "invoices": {
                "module": "tasks:worker", "image": "registry.example.com/tasks:1", "slots": 8,
                "resources": {"limits": {"memory": "12Gi"}},
                "autoscaling": {"enabled": True, "kind": "invoice & more"},
            },
            "z-name-of-24-characters1": {"replicas": 1},
        },
        "ingress": {
            "enabled": True, "className": "nginx", "tlsSecret": "fairlane-tls",
            "annotations": {"nginx.ingress.kubernetes.io/proxy-body-size": "101m"},
        },
        "nodeSelector": {"disktype": "ssd"},
        "tolerations": [{"key": "documents", "operator": "Exists", "effect": "NoSchedule"}],
    },
}  # fmt: skip
RELEASE = "a-release-whose-name-is-as-long-as-helm-lets-it-be-53"
OLDEST, NEWEST = "1.25", kubernetes_validate.latest_version()
# The fields of KEDA's documentation 2.21: ScaledObject specification, scaler "Metrics API", authentication.
SCALED_OBJECT = {
    "advanced", "cooldownPeriod", "fallback", "idleReplicaCount", "initialCooldownPeriod", "maxReplicaCount", "minReplicaCount",
    "pollingInterval", "scaleTargetRef", "triggers",
}  # fmt: skip
METRICS_API = {
    "activationTargetValue", "aggregateFromKubeServiceEndpoints", "aggregationType", "authMode", "format", "keyParamName",
    "method", "targetValue", "timeout", "unsafeSsl", "url", "valueLocation",
}  # fmt: skip


def helm(*arguments: str, values: Document | None = None) -> subprocess.CompletedProcess[str]:
    options = ["--values", "-"] if values is not None else []
    return subprocess.run(
        [program("helm"), *arguments, *options], input=yaml.safe_dump(values), capture_output=True, text=True, check=False
    )


@cache
def rendered(name: str, release: str = "x") -> list[Document]:
    """Return what helm makes of the chart with these values."""
    done = helm("template", release, str(CHART), values=SETS[name])
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def of_kind(documents: list[Document], kind: str) -> dict[str, Document]:
    """Return the documents of a kind, by their names."""
    return {document["metadata"]["name"]: document for document in documents if document["kind"] == kind}


def container(deployment: Document) -> Document:
    (found,) = deployment["spec"]["template"]["spec"]["containers"]
    assert isinstance(found, dict)
    return found


def test_helm_finds_nothing_to_mend() -> None:
    done = helm("lint", "--strict", str(CHART))
    assert done.returncode == 0, done.stdout
    assert "[WARNING]" not in done.stdout


def faults(document: Document, version: str) -> str | None:
    """Return what a version of Kubernetes would refuse in a document."""
    try:
        kubernetes_validate.validate(document, version, strict=True)
    except kubernetes_validate.ValidationError as error:
        return f"{document['kind']} {document['metadata']['name']}: {error.json_path}: {error.message}"
    return None


@pytest.mark.parametrize(("name", "version"), [*((name, NEWEST) for name in SETS), ("everything", OLDEST)])
def test_kubernetes_knows_every_field(name: str, version: str) -> None:
    assert f">={OLDEST}.0" in (CHART / "Chart.yaml").read_text()
    ours = [document for document in rendered(name) if not document["apiVersion"].startswith("keda.sh/")]
    assert [fault for document in ours if (fault := faults(document, version))] == []


def test_a_field_that_kubernetes_does_not_know_is_found() -> None:
    deployment = json.loads(json.dumps(of_kind(rendered("defaults"), "Deployment")["x-fairlane"]))
    deployment["spec"]["template"]["spec"]["graceSeconds"] = 1
    assert "graceSeconds" in str(faults(deployment, NEWEST))


@pytest.mark.parametrize("release", ["x", "fairlane", RELEASE])
def test_names_and_labels_are_valid_and_names_are_unique(release: str) -> None:
    documents = rendered("everything", release)
    names = [(document["kind"], document["metadata"]["name"]) for document in documents]
    assert len(set(names)) == len(names)
    for document in documents:
        metadata = [document["metadata"], document["spec"].get("template", {}).get("metadata", {})]
        # KEDA makes the name of a ScaledObject the value of a label; a Service has the shortest names of all.
        for value in (document["metadata"]["name"], *(value for part in metadata for value in part.get("labels", {}).values())):
            assert re.fullmatch(r"[a-z0-9]([\w.-]{0,61}[a-z0-9])?", value, re.ASCII | re.IGNORECASE), value
        assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", document["metadata"]["name"]), document["metadata"]["name"]


@pytest.mark.parametrize("name", SETS)
def test_what_belongs_together_finds_each_other(name: str) -> None:
    documents = rendered(name)
    deployments = of_kind(documents, "Deployment")
    labels = {key: found["spec"]["template"]["metadata"]["labels"] for key, found in deployments.items()}
    for document in documents:
        if document["kind"] in ("Deployment", "PodDisruptionBudget", "Service"):
            selector = document["spec"]["selector"]
            wanted = selector.get("matchLabels", selector).items()
            assert [key for key in labels if wanted <= labels[key].items()] == [document["metadata"]["name"]]
    for found in deployments.values():
        pod = found["spec"]["template"]["spec"]
        assert {mount["name"] for mount in container(found)["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    for ingress in of_kind(documents, "Ingress").values():
        (path,) = ingress["spec"]["rules"][0]["http"]["paths"]
        service = of_kind(documents, "Service")[path["backend"]["service"]["name"]]
        assert service["spec"]["ports"][0]["name"] == path["backend"]["service"]["port"]["name"]
    for target, scaled in of_kind(documents, "ScaledObject").items():
        assert scaled["spec"]["scaleTargetRef"]["name"] == target
        assert "replicas" not in deployments[target]["spec"]


def strings(values: Any) -> set[str]:
    """Return every string among the values, at any depth."""
    if isinstance(values, dict | list):
        return set().union(*map(strings, values.values() if isinstance(values, dict) else values))
    return {values} if isinstance(values, str) else set()


@pytest.mark.parametrize("name", SETS)
def test_every_string_that_is_set_arrives(name: str) -> None:
    text = unquote_plus(yaml.safe_dump(rendered(name), width=1000))
    assert [value for value in strings(SETS[name]) if value not in text] == []


def test_what_is_set_arrives_where_it_belongs() -> None:
    documents = rendered("everything")
    deployments = of_kind(documents, "Deployment")
    service, extract, invoices = (deployments[f"x-fairlane{end}"] for end in ("", "-worker-extract", "-worker-invoices"))
    assert set(deployments) == {"x-fairlane", *(f"x-fairlane-worker-{name}" for name in SETS["everything"]["workers"])}
    assert container(service)["image"] == container(extract)["image"] == "registry.example.com/fairlane:2"
    assert {"--port=8080", "--trusted-proxy=10.0.0.0/8", "--retention"} <= set(container(service)["args"])
    assert container(invoices)["image"] == "registry.example.com/tasks:1"
    assert (container(invoices)["args"][1], container(invoices)["args"][-1]) == ("--slots=8", "tasks:worker")
    assert container(invoices)["resources"] == {"limits": {"memory": "12Gi"}, "requests": {"cpu": "1", "memory": "2Gi"}}
    other = container(deployments["x-fairlane-worker-z-name-of-24-characters1"])  # made after invoices, and not changed by it
    assert (other["args"][1], other["resources"]["limits"]) == ("--slots=4", {"memory": "6Gi"})
    environment = {variable["name"]: variable.get("value") for variable in container(extract)["env"]}
    assert environment["OTEL_BSP_MAX_QUEUE_SIZE"] == "1000000"
    assert environment["FAIRLANE_ENCRYPTION_KEY_FILE"] == "/etc/fairlane/encryption/current"
    claims = {name: list(of_kind(rendered(name), "PersistentVolumeClaim")) for name in SETS}
    assert {name for name in claims if not claims[name]} == {"files on S3", "a claim that exists"}
    assert list(of_kind(rendered("no worker"), "Deployment")) == ["x-fairlane"]
    assert not of_kind(rendered("no budgets and no options"), "PodDisruptionBudget")


@pytest.mark.parametrize(("worker", "kind"), [("extract", "extract"), ("invoices", "invoice & more")])
def test_keda_reads_the_capacity_of_the_workers_kind(worker: str, kind: str) -> None:
    documents, name = rendered("everything"), f"x-fairlane-worker-{worker}"
    scaled, authentication = (of_kind(documents, kind)[name]["spec"] for kind in ("ScaledObject", "TriggerAuthentication"))
    assert set(scaled) <= SCALED_OBJECT
    assert scaled["minReplicaCount"] <= scaled["maxReplicaCount"]
    (trigger,) = scaled["triggers"]
    assert set(trigger) <= {"authenticationRef", "metadata", "metricType", "name", "type", "useCachedMetrics"}
    assert (trigger["type"], trigger["authenticationRef"]) == ("metrics-api", {"name": name})
    metadata = trigger["metadata"]
    assert set(metadata) <= METRICS_API
    assert {type(value) for value in metadata.values()} == {str}
    assert float(metadata["targetValue"]) == (8 if worker == "invoices" else 4)  # the slots of one pod
    assert metadata["authMode"] == "bearer"
    (secret,) = authentication["secretTargetRef"]
    assert secret == {"parameter": "token", "name": "fairlane-viewer-key", "key": "key"}  # token: of the mode bearer
    url = urlsplit(metadata["url"])
    assert (url.hostname, url.port) == ("x-fairlane.default.svc", 8080)
    assert parse_qs(url.query) == {"kind": [kind], "target_wait": ["30"]}
    api = describe()
    assert set(parse_qs(url.query)) <= {parameter["name"] for parameter in api["paths"][url.path]["get"]["parameters"]}
    assert metadata["valueLocation"] == "slots_wanted"
    assert "slots_wanted" in api["components"]["schemas"]["Capacity"]["properties"]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ("workers[0].autoscaling.enabled=true", "workers: Invalid type. Expected: object, given: array"),
        ("workers.Extract.slots=2", 'workers: Property name of "Extract" does not match'),
        ("workers.a-name-of-25-characters-x.slots=2", "does not match"),
        ("workers.extract.replica=2", "workers.extract: Additional property replica is not allowed"),
        ("workers.extract.slots=0", "workers.extract.slots: Must be greater than or equal to 1"),
        ("workers.extract.module=tasks", "workers.extract.module: Does not match pattern"),
        ("files.location=/srv/files", "files.location: Does not match pattern '^(s3://.+)?$'"),
        ("queue.secret=", "queue.secret: String length must be greater than or equal to 1"),
        ("ingress.enabled=yes", "ingress.enabled: Invalid type. Expected: boolean, given: string"),
        ("ingres.enabled=true", "Additional property ingres is not allowed"),
    ],
)
def test_bad_values_are_refused_and_named(values: str, message: str) -> None:
    done = helm("template", "x", str(CHART), "--set", values)
    assert done.returncode != 0
    assert message in done.stderr


def test_values_and_their_schema_have_the_same_keys() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())

    def compare(values: Document, part: Document, where: str) -> None:
        part = schema["definitions"][part["$ref"].rpartition("/")[2]] if "$ref" in part else part
        if "properties" not in part:
            return
        assert part["additionalProperties"] is False, where
        assert set(values) == set(part["properties"]) - {"global"}, where
        for name, value in values.items():
            compare(value, part["properties"][name], f"{where}.{name}")

    compare(yaml.safe_load((CHART / "values.yaml").read_text()), schema, "values")
