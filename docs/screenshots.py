"""Pictures of the console for the docs: `python -m docs.screenshots` writes them to docs/images.

A real cluster with a small shop on it: messages that are sent, consumed, late and given up.
"""

import asyncio
import json
import random
import sys
import tempfile
import threading
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, expect, sync_playwright

from bolide import Message, Producer, PushConsumer, StoredMessage
from tests.browser import chromium
from tests.browser.site import Site, log_in, serve_site

IMAGES = Path(__file__).parent / "images"
SECONDS_OF_TRAFFIC = 90
SIZE = {"width": 1440, "height": 900}
SHOTS = {
    "dashboard": ("/?range=15m", "light", "en-US"),
    "dashboard-dark-chinese": ("/?range=15m", "dark", "zh-CN"),
    "cluster": ("/cluster", "light", "en-US"),
    "topics": ("/topics", "light", "en-US"),
    "topic": ("/topics/orders?tab=queues", "light", "en-US"),
    "consumers": ("/consumers", "light", "en-US"),
    "consumer": ("/consumers/billing?tab=queues", "light", "en-US"),
    "messages": ("/messages?topic=orders", "light", "en-US"),
    "dead-letters": ("/dead-letters/shipping", "light", "en-US"),
    "ops": ("/ops", "dark", "en-US"),
}


def main() -> None:
    path = chromium.find()
    if path is None:
        sys.exit(chromium.ADVICE)
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as home, serve_site(Path(home)) as site:
        stop = threading.Event()
        shop = threading.Thread(target=lambda: asyncio.run(_run_shop(site, stop)))
        shop.start()
        try:
            time.sleep(SECONDS_OF_TRAFFIC)
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(
                    executable_path=path, args=list(chromium.FLAGS)
                )
                for name, (address, theme, language) in SHOTS.items():
                    context = browser.new_context(base_url=site.url, viewport=SIZE)  # type: ignore[arg-type]
                    chosen = {"bolide_theme": theme, "bolide_language": language}
                    context.add_cookies(
                        [{"name": n, "value": v, "url": site.url} for n, v in chosen.items()]
                    )
                    page = context.new_page()
                    log_in(page, site.url)
                    _take(page, address, IMAGES / f"console-{name}.png")
                    context.close()
                browser.close()
        finally:
            stop.set()
            shop.join()


def _take(page: Page, address: str, file: Path) -> None:
    page.goto(address)
    expect(page.locator("main [role=heading][aria-level='1']")).to_be_visible()
    expect(page.locator(".state-loading")).to_have_count(0)
    page.wait_for_timeout(4000)  # charts draw, and live figures come
    page.screenshot(path=file)
    print(file)


async def _run_shop(site: Site, stop: threading.Event) -> None:
    """Orders, payments and shipments; billing is slow, and shipping gives some up."""
    names: dict[str, Any] = {"name_server": site.name_server}
    async with AsyncExitStack() as stack:
        producer = Producer("shop", trace=True, **names)
        await stack.enter_async_context(producer)
        for topic, queues in (("orders", 8), ("payments", 4), ("shipments", 4), ("audit-trail", 1)):
            await producer.create_topic(topic, queues)
        groups: list[tuple[str, str, Any, dict[str, Any]]] = [
            ("billing", "orders", _bill, {"concurrency": 1}),
            ("stock", "orders", _ignore, {}),
            ("accounting", "payments", _ignore, {}),
            ("shipping", "shipments", _ship, {"max_reconsume_times": 0}),
        ]
        for group, topic, handle, options in groups:
            consumer = PushConsumer(group, consume_from="first", trace=True, **options, **names)
            await stack.enter_async_context(consumer)
            await consumer.subscribe(topic, "*", handle)
        numbers = random.Random(7)  # noqa: S311  not for secrets
        number = 0
        while not stop.is_set():
            number += 1
            for topic in ("orders", "payments", "shipments")[: numbers.randint(1, 3)]:
                await producer.send(_message(topic, number, numbers))
            await asyncio.sleep(numbers.uniform(0.005, 0.03))


def _message(topic: str, number: int, numbers: random.Random) -> Message:
    body = {
        "order": number,
        "customer": f"c-{numbers.randint(1, 400):04}",
        "amount": round(numbers.uniform(5, 400), 2),
        "items": [{"sku": f"sku-{numbers.randint(1, 90)}", "count": numbers.randint(1, 4)}],
    }
    return Message(
        topic,
        json.dumps(body).encode(),
        tags=numbers.choice(("paid", "open", "cancelled")),
        keys=f"order-{number}",
        properties={"region": numbers.choice(("north", "south"))},
    )


async def _bill(_: StoredMessage) -> None:
    await asyncio.sleep(0.06)


async def _ignore(_: StoredMessage) -> None:
    return


async def _ship(message: StoredMessage) -> None:
    if json.loads(message.body)["order"] % 50 == 0:
        raise ValueError("no carrier serves this address")


if __name__ == "__main__":
    main()
