"""The service answers at all, and its errors are problems."""

from tests.web.conftest import Api


async def test_a_list_and_what_is_not_there(api: Api):
    answer = await api.get("/v1/campaigns")
    assert (answer.status, answer.json) == (200, {"items": [], "next": None})
    assert (await api.get("/v1/campaigns/7")).problem == (404, "not-found")
    assert (await api.get("/v1/campaigns?limit=x")).problem == (422, "invalid")
    assert (await api.get("/v1/campaigns?colour=red")).json["field"] == "colour"
    assert (await api.get("/v1/nothing")).problem == (404, "not-found")
    assert (await api.call("PUT", "/v1/campaigns")).problem == (405, "method-not-allowed")
    assert (await api.get("/v1/campaigns", key=None)).problem == (401, "unauthorized")
    assert (await api.get("/v1/campaigns", key="plk_1_x")).problem == (401, "unauthorized")
    assert (await api.get("/v1/campaigns", key=await api.new_key("audit"))).problem == (403, "forbidden")
