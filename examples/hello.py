"""Two nodes: one publishes, one subscribes. They could as well be on two machines."""

import gossamer


async def main() -> None:
    async with gossamer.Node() as station, gossamer.Node(join=[station.address]) as reader:
        await station.advertise("weather", "country STRING, city STRING, temp INT")
        async with reader.subscribe("weather", "country = 'CH' AND temp > 30") as events:
            for city, temp in (("Geneva", 31), ("Zurich", 28)):
                # Here the event is accepted.
                receipt = await station.publish(
                    "weather", {"country": "CH", "city": city, "temp": temp}
                )
                # Here it is complete: every node that could want the event has reported.
                done = await receipt
                print(f"{city}: taken by {done.matched}")
            event = await anext(events)
            print(f"got {event['city']}, {event['temp']} degrees")


gossamer.run(main())
