import pytest

from treadle.core.errors import ToolError
from treadle.tools.web.ssrf_guard import WebPolicy, read_url

REFUSED = [
    "http://127.0.0.1/",
    "http://127.1/",
    "http://2130706433/",
    "http://0x7f000001/",
    "http://0x7f.0.0.1/",
    "http://0177.0.0.1/",
    "http://127.0.0.1./",
    "http://0/",
    "http://0.0.0.0/",
    "http://10.0.0.1/",
    "http://172.16.0.1/",
    "http://192.168.1.1/",
    "http://100.64.0.1/",
    "http://169.254.169.254/latest/meta-data/",
    "http://168.63.129.16/",
    "http://198.18.0.1/",
    "http://224.0.0.1/",
    "http://255.255.255.255/",
    "http://[::1]/",
    "http://[::]/",
    "http://[::ffff:127.0.0.1]/",
    "http://[::ffff:8.8.8.8]/",
    "http://[64:ff9b::a9fe:a9fe]/",
    "http://[2002:7f00:1::]/",
    "http://[2001:0:1::1]/",
    "http://[fe80::1]/",
    "http://[fe80::1%25eth0]/",
    "http://[fc00::1]/",
    "http://[ff02::1]/",
    "http://①②⑦.⓪.⓪.①/",
    "http://user@example.org/",
    "http://user:word@example.org/",
    "http://example.org\\@127.0.0.1/",
    "http://example.org /",
    "http://example.org:22/",
    "http://example.org:0/",
    "http://example.org:99999/",
    "file:///etc/passwd",
    "gopher://example.org/",
    "ftp://example.org/",
    "//example.org/",
    "http:///path",
    "http://-bad-.org/",
    "http://exa\nmple.org/",
    "",
]


@pytest.mark.parametrize("url", REFUSED)
def test_a_url_that_leads_inside_or_is_spelt_oddly_is_refused(url: str) -> None:
    """Before any name is looked up, with the code of a refusal."""
    with pytest.raises(ToolError) as caught:
        read_url(url, WebPolicy())
    assert caught.value.info.code == "url_refused"


@pytest.mark.parametrize(
    ("url", "host", "asked"),
    [
        ("https://Example.org", "example.org", "https://example.org:443/"),
        ("http://example.org./a?b=c#d", "example.org", "http://example.org:80/a?b=c"),
        ("https://1.1.1.1/", "1.1.1.1", "https://1.1.1.1:443/"),
        ("https://[2606:4700::1111]/x", "2606:4700::1111", "https://[2606:4700::1111]:443/x"),
        ("https://bücher.example/", "xn--bcher-kva.example", "https://xn--bcher-kva.example:443/"),
    ],
)
def test_a_public_url_passes_as_it_will_be_asked(url: str, host: str, asked: str) -> None:
    """The host is folded once, so that what is checked is what is asked."""
    target = read_url(url, WebPolicy())
    assert (target.host, target.url) == (host, asked)


def test_hosts_can_be_narrowed() -> None:
    """Names by pattern, addresses by themselves."""
    policy = WebPolicy(hosts=("*.example.org", "1.1.1.1"))
    assert read_url("https://a.example.org/", policy).host == "a.example.org"
    assert read_url("https://1.1.1.1/", policy).host == "1.1.1.1"
    for url in ("https://example.org.evil.net/", "https://example.org/", "https://8.8.8.8/"):
        with pytest.raises(ToolError, match="not among those"):
            read_url(url, policy)


def test_a_private_network_can_be_allowed_by_itself() -> None:
    """It and no other."""
    policy = WebPolicy(networks=("10.1.0.0/16",))
    assert policy.refusal("10.1.2.3") is None
    assert policy.refusal("10.2.0.1") == "is not a public address"
    assert policy.refusal("nonsense") == "is not an address"


def test_a_url_has_a_length() -> None:
    """Nobody needs a longer one."""
    with pytest.raises(ToolError, match="longer than"):
        read_url("https://example.org/" + "a" * 5_000, WebPolicy())
