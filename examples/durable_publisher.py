"""A publisher is killed while the network is down.

Its accepted events are on its disk, and its next life delivers each of them once.
"""

import signal
import socket
import subprocess
import sys
import tempfile

import gossamer

READINGS = "sensor STRING, value DOUBLE"


async def publisher(data_dir: str, join: str) -> None:
    """Run in a process of its own. An accepted event is on disk."""
    async with gossamer.Node(
        data_dir=data_dir, join=[join], join_required=False, join_timeout=0.1
    ) as node:
        await node.advertise("readings", READINGS)
        for n in range(5):
            await node.publish("readings", {"sensor": "s1", "value": float(n)})
        print("accepted 5", flush=True)
        # The parent process kills this process here.
        await node.drain(timeout=60.0)


async def main() -> None:
    # This finds an address where no node listens yet.
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        meeting = f"127.0.0.1:{sock.getsockname()[1]}"
    with tempfile.TemporaryDirectory() as data_dir:
        command = [sys.executable, __file__, data_dir, meeting]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            print("publisher:", child.stdout.readline().strip())
            child.send_signal(signal.SIGKILL)
        print("publisher: killed")

        async with gossamer.Node(listen=meeting) as archive:
            await archive.advertise("readings", READINGS)
            async with archive.subscribe("readings") as events:
                async with gossamer.Node(data_dir=data_dir, join=[meeting]) as second_life:
                    print(f"publisher: back, life {second_life.incarnation}")
                    unsettled = await second_life.drain(timeout=30.0)
                values = [(await anext(events))["value"] for _ in range(events.backlog)]
                print(f"archive: got {values}, {unsettled} left in the outbox")


if __name__ == "__main__":
    gossamer.run(publisher(*sys.argv[1:]) if len(sys.argv) > 1 else main())
