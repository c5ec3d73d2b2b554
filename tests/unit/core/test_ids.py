from treadle.core.ids import CountingIds, shown_call_id, stored_call_id


def test_ids_that_are_counted_come_in_order():
    """The first is number one, each has its prefix, and a namespace keeps two sources apart."""
    ids = CountingIds()
    assert [ids.new("run"), ids.new("msg"), ids.new("run")] == ["run_0001", "msg_0002", "run_0003"]
    assert CountingIds(namespace="b", count=41).new("fc") == "fc_b0042"


def test_a_server_calls_shown_id_leads_back_to_its_item():
    """What a client was shown names the stored item; any other id is its own."""
    assert shown_call_id("fc_0001") == "mcp_0001"
    assert stored_call_id("mcp_0001") == "fc_0001"
    assert [stored_call_id(item_id) for item_id in ("fc_0001", "msg_mcp_1", "")] == ["fc_0001", "msg_mcp_1", ""]
