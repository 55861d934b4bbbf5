"""Jobs in order, and no more under way than asked."""

from __future__ import annotations

from functools import partial

import pytest

from sottovoce.core.processes import in_order, workers


def test_results_come_in_order_with_their_tags_and_few_are_ahead() -> None:
    begun: list[int] = []

    def job(number: int) -> int:
        begun.append(number)
        return number**2

    with workers(1) as submit:
        found = in_order(submit, ((number, partial(job, number)) for number in range(6)), 2)
        assert next(found) == (0, 0)
        assert begun == [0, 1, 2]
        assert list(found) == [(1, 1), (2, 4), (3, 9), (4, 16), (5, 25)]


def test_an_error_in_a_job_is_raised() -> None:
    with workers(1) as submit, pytest.raises(ZeroDivisionError):
        list(in_order(submit, [(0, lambda: 1 // 0)], 1))


@pytest.mark.slow
def test_processes_give_the_same() -> None:
    with workers(2) as submit:
        assert list(in_order(submit, ((n, partial(pow, n, 2)) for n in range(5)), 3)) == [
            (n, n**2) for n in range(5)
        ]
