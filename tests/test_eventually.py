import pytest

from tests.eventually import eventually


async def test_returns_what_the_assertion_returned_once_it_holds():
    calls = iter([0, 0, 3])

    def assertion():
        value = next(calls)
        assert value
        return value

    assert await eventually(assertion) == 3


async def test_awaits_an_async_assertion():
    async def assertion():
        return "done"

    assert await eventually(assertion) == "done"


async def test_passes_the_last_failure_on_when_the_time_is_over():
    async def assertion():
        raise AssertionError("never")

    with pytest.raises(AssertionError, match="never"):
        await eventually(assertion, within=0.0)


async def test_lets_any_other_error_pass_at_once():
    def assertion():
        raise KeyError("broken test")

    with pytest.raises(KeyError):
        await eventually(assertion)
