"""The offline page in a real browser: its numbers are those of `simulate`, and everybody can use it."""

import random
from itertools import groupby

import pytest

from dpdemo import simulate
from dpdemo.results.devices import ordinal_of

NUM_DRAWN = 10_000
KEYS = {"right": "\ue014", "left": "\ue012", "down": "\ue015", "up": "\ue013", "tab": "\ue004"}


def drawn_case(draw):
    gpus = draw.choice([draw.randint(1, 16), draw.randint(1, 128)])
    batch = draw.choice([draw.randint(1, 40), draw.randint(1, 100_000)])
    data = draw.choice([draw.randint(1, 200), draw.randint(1, 10**9)])
    drop_last = draw.random() < 0.5 and batch <= data
    return batch, data, gpus, drop_last, draw.randrange(data)


def answer_of(given):
    """Return what `simulate` says of a case: groups, sums, and the way of the sample."""
    batch, data, gpus, drop_last, sample = given
    report = simulate(batch_size=batch, data_size=data, gpus=gpus, drop_last=drop_last, trace_sample=sample)
    totals = report.totals
    stops = [(stop.batch, ordinal_of(stop.device), stop.row, stop.output_row) for stop in report.trace.stops]
    sums = (totals.batches, totals.samples, totals.utilization, totals.sample_weight)
    return [group_of(group) for group in report.batches], sums, stops[0] if stops else None


def group_of(group):
    alike = (list(run) for _, run in groupby(group.in_model, key=lambda replica: replica.rows))
    runs = [(ordinal_of(run[0].device), len(run), run[0].rows) for run in alike]
    facts = (group.first, group.count, group.batch_size, len(group.idle))
    return *facts, group.utilization, group.sample_weight, runs


DISAGREEMENTS = """arguments[0].filter(([given, known]) => {
  const [batchSize, dataSize, gpus, dropLast, sample] = given;
  const epoch = simulate({ batchSize, dataSize, gpus, dropLast });
  const stop = follow(epoch, sample);
  return JSON.stringify(known) !== JSON.stringify([
    epoch.groups.map((group) => [
      group.first, group.count, group.batchSize, group.idle, group.balance, group.sampleWeight,
      group.runs.map((run) => [run.first, run.count, run.rows]),
    ]),
    [epoch.batches, epoch.samples, epoch.utilization, epoch.sampleWeight],
    stop && [stop.batch, stop.gpu, stop.row, stop.outputRow],
  ]);
}).slice(0, 3)"""


@pytest.mark.slow
def test_the_page_agrees_with_simulate_on_ten_thousand_drawn_configs(page):
    draw = random.Random(19)  # noqa: S311 - the same cases each time
    drawn = [drawn_case(draw) for _ in range(NUM_DRAWN)]
    cases = [(given, answer_of(given)) for given in [*drawn, (100_000, 10**9, 128, False, 10**9 - 1)]]
    assert page.ask(DISAGREEMENTS, cases) == []


def test_nothing_is_asked_of_a_network_and_the_console_is_empty(page, page_file):
    page.type("#gpus", "8")
    page.element("#next").click()
    assert page.requests() == {page_file.as_uri()}
    assert page.browser.get_log("browser") == []


def test_a_slider_changes_every_number(page):
    page.element("#gpus-range").send_keys(KEYS["right"])
    assert page.ask("document.getElementById('gpus').value") == "4"
    assert page.text("#command") == "dpdemo simulate --gpus 4 --batch-size 30 --data-size 100"
    assert "8 + 8 + 8 + 6" in page.ask("stepSays(groupNow(), 'scatter')")
    assert "gpus=4" in page.ask("location.hash")


def test_the_fields_take_numbers_beyond_the_sliders_and_bring_others_back(page):
    page.type("#batch", "5000")
    assert "batch=5000" in page.ask("location.hash")
    page.type("#gpus", "999")
    assert "gpus=128" in page.ask("location.hash")
    page.element("#gpus").send_keys(KEYS["tab"])
    assert page.ask("document.getElementById('gpus').value") == "128"


def test_drop_last_may_leave_no_batch_at_all(page):
    page.type("#batch", "101")
    page.element("#drop-last").click()
    assert page.element("#no-batch").is_displayed()
    assert not page.element("#content").is_displayed()
    page.element("#drop-last").click()
    assert page.element("#content").is_displayed()


def test_the_page_opens_on_the_result_with_the_rule_in_words(page):
    page.open("#batch=30&data=100&gpus=8")
    assert page.element("[data-step='4']").get_attribute("aria-current") == "step"
    assert page.text("#rule") == (
        "The rule: torch.chunk gives ceil(30 / 8) = 4 rows to each GPU; the last chunk has the 2 left over."
    )
    assert "4 rows out" in page.text("#lanes")


def test_eight_gpus_have_as_many_colours_and_their_numbers_beside_them(page):
    page.open("#batch=32&data=32&gpus=8")
    bars = "[...document.querySelectorAll('#batches .bar')]"
    assert len(set(page.ask(f"{bars}.map((bar) => getComputedStyle(bar).backgroundColor)"))) == 8
    assert page.ask(f"{bars}.map((bar) => bar.textContent)") == list("01234567")


def test_the_stepper_goes_by_buttons_and_arrow_keys_and_lists_the_copies(page):
    page.element("[data-step='0']").click()
    assert "Nothing has been copied" in page.text("#copies")
    page.element("#next").click()
    assert page.text("#copies caption") == "Copied so far"
    page.element("[data-step='1']").send_keys(KEYS["right"])
    assert page.element("[data-step='2']").get_attribute("aria-current") == "step"
    assert page.ask("document.activeElement.dataset.step") == "2"
    page.element("[data-step='4']").click()
    rows = page.ask(
        "[...document.querySelectorAll('#copies tbody tr')].map((row) => row.innerText.split('\\t'))"
    )
    assert rows == [
        ["scatter", "cuda:0 → cuda:1–2", "10 rows each"],
        ["replicate", "cuda:0 → cuda:1–2", "parameters and buffers each"],
        ["gather", "cuda:1–2 → cuda:0", "10 rows each"],
    ]


def test_a_sample_is_followed_by_click_and_by_arrow_keys(page):
    page.element("[data-sample='17']").click()
    assert "chunk of 10 rows on cuda:1" in page.text("#sample-says")
    page.element("[data-sample='17']").send_keys(KEYS["right"])
    assert page.ask("document.activeElement.dataset.sample") == "18"
    assert "sample=18" in page.ask("location.hash")
    page.type("#sample", "99")
    assert "4, row 9 of it" in page.text("#sample-says")


def test_a_link_shows_its_case(page):
    page.open("#batch=65&data=1000&gpus=8&drop_last=1&number=2&step=3&sample=70&predict=1")
    assert page.ask("[state.batch, state.data, state.gpus, state.dropLast]") == [65, 1000, 8, True]
    assert page.ask("[state.batchNumber, state.step, state.sample]") == [2, 3, 70]
    assert not page.element("#batches").is_displayed()
    assert page.element("#questions").is_displayed()


@pytest.mark.parametrize(
    "fragment", ["#batch=-1&gpus=x", "#gpus=1e9", "#%00", "#batch=<b>&gpus=2", "#step=99&sample=1e99"]
)
def test_a_broken_link_still_shows_a_page(page, fragment):
    page.open(fragment)
    assert page.ask("epoch.batches") > 0
    assert page.browser.get_log("browser") == []


def test_a_question_is_answered_after_the_prediction(page):
    page.element("#predicting").click()
    assert not page.element("#lanes").is_displayed()
    button = page.element("#questions li:nth-child(2) button")
    button.click()
    assert page.text("#questions li:nth-child(2) output") == "Predict a number first."
    page.type("#answer-largest", "9")
    button.click()
    assert page.text("#questions li:nth-child(2) output") == "Not quite: 10. ceil(30 / 3) = 10."
    page.type("#answer-largest", "10")
    button.click()
    assert page.text("#questions li:nth-child(2) output").startswith("Right: 10.")


@pytest.mark.parametrize("width", [320, 375, 768])
@pytest.mark.parametrize("fragment", ["", "#batch=100000&data=1000000000&gpus=128&step=4&sample=999999999"])
def test_no_screen_is_too_narrow(page, width, fragment):
    page.browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 700, "deviceScaleFactor": 1, "mobile": True},
    )
    page.open(fragment)
    assert page.ask("document.documentElement.scrollWidth") <= width
    outside = """[...document.querySelectorAll('main *')].filter((each) => !each.closest('.scroll, .skip')
        && each.getBoundingClientRect().right > innerWidth + 1).map((each) => each.outerHTML.slice(0, 80))"""
    assert page.ask(outside) == []


CONTRAST = """(() => {
  const paint = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const parts = (colour) => {
    paint.clearRect(0, 0, 1, 1);
    paint.fillStyle = colour;
    paint.fillRect(0, 0, 1, 1);
    return [...paint.getImageData(0, 0, 1, 1).data];
  };
  const linear = (part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
  const light = ([r, g, b]) =>
    0.2126 * linear(r / 255) + 0.7152 * linear(g / 255) + 0.0722 * linear(b / 255);
  const behind = (element) => {
    for (let each = element; each; each = each.parentElement) {
      const found = parts(getComputedStyle(each).backgroundColor);
      if (found[3] === 255) return found;
    }
    return parts('Canvas');
  };
  const hasText = (each) => each.tagName === 'INPUT' ||
    [...each.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
  const ratio = (each) => {
    const [a, b] = [light(parts(getComputedStyle(each).color)), light(behind(each))];
    return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  };
  return [...document.querySelectorAll('body *')]
    .filter((each) => each.checkVisibility({ visibilityProperty: true }) && !each.disabled && hasText(each))
    .map((each) => [ratio(each), each.outerHTML.slice(0, 90)])
    .filter(([found]) => found < 4.5);
})()"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_has_wcags_contrast(page, scheme):
    page.browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    )
    page.open("#gpus=8&step=4")
    assert page.ask("getComputedStyle(document.body).backgroundColor") == (
        "rgb(255, 255, 255)" if scheme == "light" else "rgb(15, 20, 25)"
    )
    assert page.ask(CONTRAST) == []


def test_every_control_has_a_name_and_every_id_is_one_of_a_kind(page):
    tree = page.browser.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    controls = {"button", "spinbutton", "slider", "checkbox", "textbox", "application", "link", "group"}
    nameless = [
        node["role"]["value"]
        for node in tree
        if node["role"]["value"] in controls
        and not node.get("name", {}).get("value")
        and not node.get("ignored")
    ]
    assert nameless == []
    ids = page.ask("[...document.querySelectorAll('[id]')].map((each) => each.id)")
    assert len(ids) == len(set(ids))
    levels = page.ask("[...document.querySelectorAll('h1, h2, h3')].map((each) => Number(each.tagName[1]))")
    assert levels[0] == 1
    assert set(levels[1:]) == {2}


def test_the_keyboard_reaches_every_control_in_order(page):
    page.open("#step=0")
    seen = []
    for _ in range(60):
        page.browser.switch_to.active_element.send_keys(KEYS["tab"])
        seen.append(page.ask("document.activeElement.id || document.activeElement.textContent"))
        if "answer-gpu" in seen:
            break
    wanted = ["batch", "batch-range", "data", "gpus", "drop-last", "predicting", "next", "sample"]
    places = [seen.index(each) for each in wanted]
    assert places == sorted(places)


def test_print_shows_every_step_and_no_sliders(page):
    page.open("#step=0")
    page.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    assert page.ask("getComputedStyle(document.querySelector('.later')).visibility") == "visible"
    assert not page.element("#gpus-range").is_displayed()
    printed = page.browser.execute_cdp_cmd("Page.printToPDF", {})
    assert len(printed["data"]) > 10_000
