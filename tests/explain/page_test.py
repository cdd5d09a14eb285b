#!/usr/bin/env python3
"""page_test.py PROGRAM MODEL: the page that `driftless explain` writes, in headless Chromium: what it shows is what its
data says, by pointer and by keyboard, on a phone and in the dark, and it asks for nothing but itself."""

import decimal
import math
import os
import sys
import tempfile
import time

from browser import Browser, find_chromium
from checks import TEXT, data_of, expect, explain, run

# What the page shows, read from the document as it is.
SHOWN = """({
  errors: document.documentElement.dataset.errors,
  title: document.title,
  table: [...document.querySelectorAll("#token-table tbody tr")].map(row => [...row.cells].map(cell => cell.textContent)),
  surprise: [...document.querySelectorAll("#surprise > [role=option]")].map(item => item.getAttribute("aria-label")),
  chosen: document.getElementById("chosen").textContent,
  head: document.getElementById("head-title").textContent,
  attends: [...document.querySelectorAll("#attends-list li")].map(item => item.textContent),
  lens: [...document.querySelectorAll("#lens-table tbody tr")].map(row => [row.cells[1].textContent,
    [...row.querySelectorAll(".guess")].map(guess => [guess.querySelector(".token").textContent,
      guess.querySelector("small").textContent, guess.classList.contains("right")])]),
  cache: document.getElementById("cache-text").textContent,
  cacheTable: [...document.querySelectorAll("#cache-table td")].map(cell => cell.textContent),
  pages: [...document.querySelectorAll(".page")].map(page =>
    ["given", "made", "now"].map(state => page.querySelectorAll(".position." + state).length)),
  walk: [...document.querySelectorAll("#walk-steps li")].map(step => [...step.querySelectorAll("code")].map(code => code.textContent)),
  focus: document.activeElement.getAttribute("aria-label") || document.activeElement.id || document.activeElement.textContent,
  width: document.documentElement.scrollWidth,
})"""


def fixed(number, digits):
    """JavaScript's toFixed: of two as close, the larger."""
    return str(decimal.Decimal(number).quantize(decimal.Decimal(1).scaleb(-digits), decimal.ROUND_HALF_UP))


def percent(share, digits=None):
    if digits is None and share < 0.00005:
        return "below 0.01\u00a0%"
    return fixed(100 * share, digits or (2 if share < 0.01 else 1)) + "\u00a0%"


def text_of(data, id):
    token = data["tokens"][str(id)]
    if isinstance(token, list):  # bytes that are no text by themselves
        return "".join(chr(byte) if 32 <= byte < 127 else f"\\x{byte:02X}" for byte in token)
    return token.replace("\n", "\\n")


def check_numbers(data, shown, token, layer, head, step):
    ids, T, L = data["ids"], len(data["ids"]), data["model"]["n_layer"]
    given = data["prompt_tokens"]
    bits = [None] + [-one / math.log(2) for one in data["log_probabilities"][1:]]
    expect("errors", shown["errors"], "0")
    expect("table of tokens", shown["table"], [
        [str(t), text_of(data, id), str(id), "none" if t == 0 else fixed(bits[t], 4),
         "none" if t == 0 else percent(math.exp(data["log_probabilities"][t])), "generated" if t >= given else "given"]
        for t, id in enumerate(ids)])
    expect("tokens", len(shown["surprise"]), T)
    for t, label in enumerate(shown["surprise"]):
        expect(f"generated at {t}", label.endswith(", generated"), t >= given)
    expect("the chosen token", f"at position {token}, id {ids[token]}," in shown["chosen"], True)
    expect("the chosen head", shown["head"], f"Layer {layer}, head {head}")

    row = data["attention"][layer][head][token * (token + 1) // 2:][:token + 1]
    order = sorted(range(token + 1), key=lambda t: -row[t])
    expected = [f"{percent(row[t] / 1000, 1)}{text_of(data, ids[t])} position {t}" for t in order[:6] if row[t] > 0]
    expect("what the chosen token attends to", shown["attends"][:len(expected)], expected)

    next_id = ids[token + 1] if token + 1 < T else None
    expect("places of the lens", len(shown["lens"]), L + 1)
    for place, (rank, guesses) in zip(data["lens"], shown["lens"]):
        one = place[token]
        expect("rank", rank.replace(",", ""), str(one["next"][0]) if one["next"] else "none")
        expect("guesses", guesses, [[text_of(data, id), percent(share / 10000), id == next_id] for id, share in one["top"]])

    one = data["cache"]["steps"][step]
    length = one["first"] + one["tokens"]
    read = length * data["cache"]["position_bytes"]
    for part in (f"Step {step + 1} of {len(data['cache']['steps'])}. ", f"{read:,} bytes", f"{L * read:,} in all layers"):
        expect(f"{part!r} in {shown['cache']!r}", part in shown["cache"], True)
    expect("table of the cache", shown["cacheTable"],
           [f"{factor * number:,}" for factor in (1, L) for number in (length, read, one["layer_bytes"])])
    expect("pages", shown["pages"], [
        [sum(first <= t < min(first + 64, length) for t in range(given)),
         sum(first <= t < min(first + 64, length) for t in range(given, T)),
         sum(first <= t < min(first + 64, length) for t in range(one["first"], T))]
        for first in range(0, length, 64)])

    steps = [one for one in data["walk"] if one["layer"] in (None, layer) and one["head"] in (None, head)]
    expect("the walk's points", [codes[0] for codes in shown["walk"][1:-1]], [one["point"] for one in steps])
    for codes, one in zip(shown["walk"][1:-1], steps):
        found = [float(number) for number in codes[1].split(", ")]
        expect("numbers of " + one["point"], found, [float(number) for number in one["first"]])


def wait_for(browser, expression, expected):
    deadline = time.monotonic() + 20
    while (found := browser.run(expression)) != expected:
        if time.monotonic() > deadline:
            sys.exit(f"{expression}: expected {expected!r} within 20 s, found {found!r}")
        time.sleep(0.05)


def check_keyboard(browser, path, data):
    """Everything can be reached by Tab and chosen by arrow keys, and what has the focus shows it."""
    L, H = data["model"]["n_layer"], data["model"]["n_head"]
    browser.open(path, "#token=5&layer=1&head=1&step=1")
    stops = []
    for _ in range(40):
        browser.press("Tab")
        stop = browser.run("""(() => { const one = document.activeElement, style = getComputedStyle(one);
          return [one.tagName + "#" + (one.id || one.parentElement.id), style.outlineStyle, parseFloat(style.outlineWidth)]; })()""")
        if stop[0].startswith("BODY"):
            break
        expect(f"outline of {stop[0]}", (stop[1], stop[2] >= 2), ("solid", True))
        stops.append(stop[0])
    expect("stops of the Tab key", stops, [
        *["A#"] * 5, "SPAN#surprise", "SUMMARY#", "SPAN#heads", "SPAN#attends", "BUTTON#back", "BUTTON#play", "BUTTON#forth",
        "INPUT#step", "SELECT#walk-layer", "SELECT#walk-head"])

    def focused(box):
        browser.run(f"document.querySelector('#{box} [tabindex=\"0\"]').focus()")

    focused("surprise")
    browser.press("ArrowRight")
    check_numbers(data, browser.run(SHOWN), 6, 1, 1, 1)
    browser.press("End")
    check_numbers(data, browser.run(SHOWN), len(data["ids"]) - 1, 1, 1, 1)
    browser.press("ArrowRight")  # there is no further one
    browser.press("Home")
    check_numbers(data, browser.run(SHOWN), 0, 1, 1, 1)
    focused("heads")
    browser.press("ArrowDown")
    browser.press("ArrowRight")
    check_numbers(data, browser.run(SHOWN), 0, 2, 2, 1)
    browser.press("End")
    check_numbers(data, browser.run(SHOWN), 0, L - 1, H - 1, 1)
    focused("attends")
    browser.press("ArrowRight")
    check_numbers(data, browser.run(SHOWN), 1, L - 1, H - 1, 1)
    browser.run("document.getElementById('forth').focus()")
    browser.press("Enter")
    check_numbers(data, browser.run(SHOWN), 1, L - 1, H - 1, 2)
    browser.run("document.getElementById('step').focus()")
    browser.press("ArrowRight")
    check_numbers(data, browser.run(SHOWN), 1, L - 1, H - 1, 3)
    wait_for(browser, "location.hash", f"#token=1&layer={L - 1}&head={H - 1}&step=3")


def check_pointer(browser, path, data):
    """Pointing at a token shows where it attends from for as long as that lasts; a click chooses it."""
    browser.resize(1280, 900)
    browser.open(path, "#token=5&layer=1&head=1")
    place = """(() => { const item = document.querySelectorAll("#attends > [role=option]")[9];
      item.scrollIntoView({block: "center"}); const box = item.getBoundingClientRect();
      return [box.left + box.width / 2, box.top + box.height / 2]; })()"""
    x, y = browser.run(place)
    browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
    expect("pointed at", "at position 9 attends to" in browser.run("document.getElementById('attends-from').textContent"), True)
    expect("still chosen", "at position 5," in browser.run("document.getElementById('chosen').textContent"), True)
    browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=2, y=2)
    expect("no longer pointed at", "at position 5 attends to" in browser.run("document.getElementById('attends-from').textContent"), True)
    x, y = browser.run(place)
    for kind in ("mousePressed", "mouseReleased"):
        browser.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
    check_numbers(data, browser.run(SHOWN), 9, 1, 1, 0)
    x, y = browser.run("""(() => { const large = document.getElementById("large"); large.scrollIntoView({block: "center"});
      const box = large.getBoundingClientRect(), size = box.height / %d; return [box.left + 3.5 * size, box.top + 7.5 * size]; })()"""
                       % len(data["ids"]))
    browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
    weight = data["attention"][1][1][7 * 8 // 2 + 3] / 1000
    expect("a place in the picture", f"at position 7 gives {percent(weight, 1)} to" in browser.run("document.getElementById('cell').textContent"), True)


def check_play(browser, path, data):
    last = len(data["cache"]["steps"])
    browser.open(path, f"#step={last - 3}")
    browser.run("document.getElementById('play').click()")
    expect("button while it plays", browser.run("document.getElementById('play').textContent"), "Pause")
    wait_for(browser, "document.getElementById('play').textContent", "Play")
    check_numbers(data, browser.run(SHOWN), data["prompt_tokens"] - 1, 0, 0, last - 1)
    browser.prefer(prefers_reduced_motion="reduce")
    expect("button where motion is not wanted", browser.run("getComputedStyle(document.getElementById('play')).display"), "none")
    browser.prefer()


# Of a text and the colour after it, mixed with the page's: WCAG's contrast, the least of all tokens.
CONTRAST = """(() => {
  const numbers = text => text.match(/[\\d.]+/g).map(Number);
  const light = rgb => { const [r, g, b] = rgb.map(c => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const page = numbers(getComputedStyle(document.body).backgroundColor);
  const least = [...document.querySelectorAll(".tokens > span, .token, .hint, .legend, small, a, td, th, p, label, button")]
    .filter(one => one.textContent && one.offsetParent).map(one => {
      const style = getComputedStyle(one), [r, g, b, a = 1] = numbers(style.backgroundColor);
      const back = light([r, g, b].map((c, i) => a * c + (1 - a) * page[i])), front = light(numbers(style.color).slice(0, 3));
      return (Math.max(back, front) + 0.05) / (Math.min(back, front) + 0.05); });
  return Math.min(...least);
})()"""


def check_appearance(browser, path):
    hashes = {}
    for scheme in ("light", "dark"):
        for width, height, is_phone in ((360, 800, True), (1280, 900, False)):
            browser.prefer(prefers_color_scheme=scheme)
            browser.resize(width, height, is_mobile=is_phone)
            browser.open(path)
            shown = browser.run(SHOWN)
            expect(f"width on {width} pixels", shown["width"], width)
            contrast = browser.run(CONTRAST)
            if contrast < 4.5:
                sys.exit(f"{scheme}: expected a contrast of 4.5 at least, found {contrast}")
        hashes[scheme] = browser.run("document.getElementById('large').toDataURL()")
    expect("another picture in the dark", hashes["light"] != hashes["dark"], True)
    # The pictures follow a change of the colours.
    browser.prefer(prefers_color_scheme="light")
    wait_for(browser, f"document.getElementById('large').toDataURL() === {hashes['light']!r}", True)
    # What has no text of its own has a name, or is hidden from those who would read it aloud.
    unnamed = browser.run("""[...document.querySelectorAll("canvas, [role], button, input, select")].filter(one =>
      !one.closest("[aria-hidden=true]") && !one.closest("[role=radio]") && !one.getAttribute("aria-label")
      && !one.getAttribute("aria-labelledby") && !(one.labels && one.labels.length)
      && (!one.textContent.trim() || one.matches("[role=listbox], [role=radiogroup], [role=region]")))
      .map(one => one.outerHTML)""")
    expect("things without a name", unnamed, [])


def main():
    chromium = find_chromium()
    if chromium is None:
        print("[skipped] there is no chromium to show the page")
        return
    with tempfile.TemporaryDirectory() as scratch, Browser(chromium) as browser:
        path = os.path.join(scratch, "page.html")
        data = data_of(explain(path, TEXT, "-n", "60"))
        browser.open(path)
        check_numbers(data, browser.run(SHOWN), data["prompt_tokens"] - 1, 0, 0, 0)
        expect("requests", browser.requests, ["file://" + path])
        browser.open(path, "#token=20&layer=7&head=3&step=40")
        check_numbers(data, browser.run(SHOWN), 20, 7, 3, 40)
        check_keyboard(browser, path, data)
        check_pointer(browser, path, data)
        check_play(browser, path, data)
        check_appearance(browser, path)
        expect("errors and complaints", browser.errors, [])
        browser.run("fetch('https://example.org/').catch(() => 0)")
        expect("a request refused by the page's policy", any("Content Security Policy" in one for one in browser.errors), True)
        browser.errors.clear()

        # Pages with little or strange in them, and addresses that say what there is not.
        for arguments in (("a", "-n", "0"), ("--ids", "3,4", "-n", "1"), ("-",)):
            result = run("explain", *arguments, "-o", path, stdin=b"\x01\xff</script>\xe2\x80\xae\xf0\x9f\x90\xbb\n")
            expect("exit status", result.returncode, 0)
            browser.open(path, "#token=999&layer=-1&head=x&step=1.5")
            expect(f"errors of {arguments}", browser.run(SHOWN)["errors"], "0")
            generated = browser.run("document.getElementById('summary').textContent.match(/given, (.*?)\\./)[1]")
            expect(f"generated by {arguments}", generated,
                   {"0": "none generated", "1": "1 generated, each the likeliest"}.get(arguments[-1], "24 generated, each the likeliest"))
            expect(f"nothing to play in {arguments}", browser.run("document.getElementById('play').disabled"), "-n" in arguments)
        expect("errors and complaints", browser.errors, [])


main()
