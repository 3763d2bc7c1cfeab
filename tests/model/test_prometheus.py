import re

import pytest
from pydantic import ValidationError

from pgherd.model.prometheus import PrometheusSource, values_of


@pytest.mark.parametrize("url", ["http://prom:9090", "https://mimir.example.org/prometheus", "http://[::1]:9090/"])
def test_addresses_of_prometheus(url: str) -> None:
    assert PrometheusSource(url=url, values="db1").url == url


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://me:secret@prom:9090", "would be recorded"),
        ("file:///etc/passwd", "not the address"),
        ("prom:9090", "not the address"),
        ("http://prom:9090/?query=up", "not the address"),
    ],
)
def test_addresses_that_are_none_are_refused_without_their_password(url: str, message: str) -> None:
    with pytest.raises(ValidationError, match=message) as error:
        PrometheusSource(url=url, values="db1")
    assert "secret" not in error.value.errors()[0]["msg"]


def test_a_host_is_matched_with_and_without_its_port() -> None:
    pattern = values_of(("db1.example.org", "10.0.0.7"))
    for text, found in (("db1.example.org:9100", True), ("10.0.0.7", True), ("db1xexample.org", False), ("db1.example.org.evil", False)):
        assert bool(re.fullmatch(pattern, text)) == found
