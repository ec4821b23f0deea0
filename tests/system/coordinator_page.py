"""What coordinator_page.sh asks of the page.  DRIVER_PORT URL PROFILE SCREENSHOT_DIR COORDINATOR_PID"""
import os
import pathlib
import signal
import sys
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "support"))
from webdriver import KEYS, Browser, wait_for  # noqa: E402

driver_port, url, profile, screenshots, coordinator = sys.argv[1:]
HOSTILE = "<img src=x onerror=document.title='taken'>"
browser = Browser(driver_port, profile)


def rows(table="agents-table"):
    return browser.texts(f"#{table} tbody tr td:nth-child(1)")


def column(n, table="agents-table"):
    return browser.texts(f"#{table} tbody tr td:nth-child({n})")


def pager():
    return browser.text("#agents-pager span")


def check(what, truth, seen=None):
    if not truth:
        browser.screenshot(f"{screenshots}/failed.png")
        raise AssertionError(f"{what}: {seen!r}")


def the_fleet_is_there():
    browser.open(url + "/")
    wait_for("the page is not ready", lambda: browser.run("return document.documentElement.dataset.ready"))
    # Ready is also who had no answer to one of its first questions; it asks again.
    for what, selector, said in (("nodes", "#node-count", "40"), ("agents", "#agent-count", "1,000"),
                                 ("records", "#record-count", "24,000")):
        wait_for(what, lambda: browser.text(selector) == said)
    wait_for("50 agents on a page", lambda: len(rows()) == 50 and "1 to 50 of 1000" in pager())
    wait_for("25 nodes on a page", lambda: len(rows("nodes-table")) == 25)
    wait_for("not connected", lambda: browser.text("#connection").startswith("connected to nats://"))


def curves_and_map_are_drawn():
    path = wait_for("no reward curve", lambda: browser.run(
        "return document.querySelector('#reward-chart path.reward')?.getAttribute('d')"))
    check("the reward curve has points", path.count("L") > 20 and path.count("M") == 1, path)
    check("so has the fallback's", browser.run("return document.querySelectorAll('#reward-chart path.fallback').length") == 1)
    stages = browser.run("return [...new Set([...document.querySelectorAll('#stage-chart rect')].map(r => r.className.baseVal))]")
    check("all stages over time", sorted(stages) == ["initialized", "offline", "online", "serving"], stages)
    wait_for("the map has no agents", lambda: " agents by application" in (browser.run(
        "return document.querySelector('#map').getAttribute('aria-label')") or ""))
    colours = browser.run(
        "const c = document.querySelector('#map'), d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data, seen = new Set();"
        "for (let i = 0; i < d.length; i += 4) if (d[i + 3] > 150) seen.add(`${d[i] >> 5},${d[i + 1] >> 5},${d[i + 2] >> 5}`);"
        "return seen.size")
    check("the map has points of several colours", colours >= 6, colours)
    browser.screenshot(f"{screenshots}/coordinator_page.png")


def hostile_names_are_text():
    browser.type("#agents-search", "onerror")
    wait_for("the search found nothing", lambda: "of 100" in pager() and "1000" not in pager())
    check("its name is its text", column(3)[0] == HOSTILE, column(3)[0])
    check("so is the target's", column(2)[0].startswith("<b>bold</b>"), column(2)[0])
    check("no element came of it", browser.run("return document.querySelectorAll('main img, td b').length") == 0)
    check("nothing ran", browser.run("return document.title") == "flashd fleet")
    browser.choose("#application", HOSTILE)
    legend = browser.texts("#map-legend .name")
    check("it is in the legend", HOSTILE in legend, legend)
    browser.choose("#application", "")


def what_was_chosen_outlives_a_refresh():
    browser.choose("#agents-stage", "serving")
    wait_for("the filter does nothing", lambda: set(column(5)) == {"serving"})
    browser.run("document.querySelector('#agents-table th:nth-child(6) button').click()")
    wait_for("not sorted by reward", lambda: browser.run(
        "return document.querySelector('#agents-table th:nth-child(6)').getAttribute('aria-sort')") == "descending")
    rewards = [float(r) for r in wait_for("no rewards", lambda: column(6))]
    check("the best come first", rewards == sorted(rewards, reverse=True), rewards[:5])
    before = browser.text("#updated")
    browser.run("document.querySelector('#agents-search').focus()")
    wait_for("it does not refresh", lambda: browser.text("#updated") != before)
    check("the search is still there", browser.run("return document.querySelector('#agents-search').value") == "onerror")
    check("and has the focus", browser.run("return document.activeElement.id") == "agents-search")
    check("the filter still holds", set(column(5)) == {"serving"})
    browser.call("POST", "/refresh", {})
    wait_for("not ready again", lambda: browser.run("return document.documentElement.dataset.ready"))
    check("it outlives a reload, too", browser.run("return document.querySelector('#agents-search').value") == "onerror")
    wait_for("so does the filter", lambda: set(column(5)) == {"serving"})


def a_nodes_agents_are_one_press_away():
    browser.open(url + "/?")  # refused: not a target
    check("a strange address is refused", "NAME=VALUE" in browser.text("body"), browser.text("body"))
    browser.open(url + "/")
    wait_for("not ready", lambda: browser.run("return document.documentElement.dataset.ready"))
    wait_for("25 nodes on a page", lambda: len(rows("nodes-table")) == 25)
    # Pressed and read in one: a refresh may come between two questions.
    node = browser.run("const b = document.querySelector('#nodes-table tbody tr:nth-child(3) td button'); b.click(); return b.textContent")
    wait_for("not its agents", lambda: "of 25" in pager() and set(rows()) == {node})
    browser.run("document.querySelector('#agents-node').click()")
    wait_for("not all again", lambda: "of 1000" in pager())
    browser.run("[...document.querySelectorAll('#agents-pager button')].at(-1).click()")
    wait_for("not the second page", lambda: "51 to 100 of 1000" in pager())


def the_keyboard_reads_the_charts():
    wait_for("no curve", lambda: browser.run("return document.querySelectorAll('#reward-chart path.reward').length"))
    browser.type("#reward-chart", KEYS["Left"] + KEYS["Left"])
    said = browser.text("#announce")
    check("the curve is said", "agents 0." in said and "fallback 0." in said, said)
    wait_for("no map", lambda: " agents by application" in (browser.run(
        "return document.querySelector('#map').getAttribute('aria-label')") or ""))
    browser.type("#map", KEYS["Right"])
    said = browser.text("#announce")
    check("a point is said", "application " in said and "stage " in said, said)
    check("a tooltip shows it", not browser.run("return document.querySelector('#tip').hidden"))
    browser.run("document.querySelector('#theme').click()")
    browser.screenshot(f"{screenshots}/coordinator_page_dark.png")


def strict_headers():
    with urllib.request.urlopen(url + "/") as answer:
        policy = answer.headers["Content-Security-Policy"]
    check("no scripts but ours", "default-src 'none'" in policy and "script-src 'self';" in policy and "unsafe" not in policy, policy)
    blocked = browser.run("const s = document.createElement('div'); try { s.innerHTML = '<b>x</b>'; } catch (e) { return e.name; } return ''")
    check("HTML from strings is refused", blocked == "TypeError", blocked)


def no_console_errors(allowed=()):
    wrong = [m["message"] for m in browser.log() if m["level"] in ("SEVERE", "WARNING") and not any(a in m["message"] for a in allowed)]
    check("the console is clean", not wrong, wrong)


def it_says_when_nobody_answers():
    os.kill(int(coordinator), signal.SIGTERM)
    wait_for("it does not say so", lambda: not browser.run("return document.querySelector('#trouble').hidden"))
    check("what was shown stays", len(rows()) == 50)


try:
    the_fleet_is_there()
    curves_and_map_are_drawn()
    hostile_names_are_text()
    what_was_chosen_outlives_a_refresh()
    no_console_errors()
    a_nodes_agents_are_one_press_away()
    the_keyboard_reads_the_charts()
    no_console_errors(allowed=("400 (Bad Request)", "favicon.ico"))
    strict_headers()
    browser.log()
    it_says_when_nobody_answers()
finally:
    browser.close()
print("the page shows 40 nodes and 1,000 agents; screenshots in", screenshots)
