"""Synchronous code: a pool of worker threads takes jobs and publishes results, without an event
loop.
"""

import threading

import gossamer
from gossamer import blocking

JOBS = 40


def work(node: blocking.Node, jobs: blocking.Subscription) -> None:
    """Take jobs until none has come for a while."""
    for job in jobs.within(timeout=1.0):
        node.publish("results", {"job": job["job"], "square": job["job"] ** 2}).wait(timeout=10.0)


def main() -> None:
    with blocking.Node() as boss, blocking.Node(join=[boss.address]) as helper:
        boss.advertise("jobs", "job INT, odd BOOLEAN")
        boss.advertise("results", "job INT, square INT")
        with (
            boss.subscribe("results") as results,
            helper.subscribe("jobs", "odd") as odd,
            helper.subscribe("jobs", "NOT odd") as even,
        ):
            threads = [threading.Thread(target=work, args=(helper, jobs)) for jobs in (odd, even)]
            for thread in threads:
                thread.start()
            receipts = boss.publish_many(
                "jobs", ({"job": n, "odd": n % 2 == 1} for n in range(JOBS))
            )
            taken = sum(done.matched for done in receipts.wait(timeout=10.0))
            print(f"{len(receipts)} jobs, {taken} taken")
            squares: dict[int, int] = {}
            while len(squares) < JOBS:
                result = results.next(timeout=10.0)
                squares[result["job"]] = result["square"]
            right = all(square == job**2 for job, square in squares.items())
            print(f"{len(squares)} results, all right: {right}")
            for thread in threads:
                thread.join()
            try:
                boss.publish("jobs", {"job": "forty-one"})
            except gossamer.EventError as error:
                print(f"refused: {error}")


if __name__ == "__main__":
    main()
