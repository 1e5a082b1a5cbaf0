"""Presence: every node knows which nodes want which topics, and hears of every change."""

import asyncio

import gossamer


async def main() -> None:
    async with gossamer.Node() as camera, gossamer.Node(join=[camera.address]) as viewer:
        await camera.advertise("frames", "number INT")
        changes = camera.view("frames").changes()
        names = {f"{viewer.peer:016x}": "viewer"}

        print("wanted by", [names[one.node] for one in camera.view("frames").nodes()])
        # With a barrier this returns when every node knows of the subscription.
        async with viewer.subscribe("frames", barrier=True) as frames:
            change = await anext(changes)
            print(change.kind, names[change.node])
            print("wanted by", [names[one.node] for one in camera.view("frames").nodes()])
            await camera.publish("frames", {"number": 1})
            print("frame", (await anext(frames))["number"])
        change = await asyncio.wait_for(anext(changes), 10.0)
        print(change.kind, names[change.node])
        print("wanted by", [names[one.node] for one in camera.view("frames").nodes()])


gossamer.run(main())
