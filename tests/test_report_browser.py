#!/usr/bin/python3
"""The page of `ebb report` in Chromium, without a network.

Every chart has content, zoom and sort work, light and dark differ, and nothing is written to the
console. Without scripts there are figures and a picture. Damaged data is said on the page. Needs
Debian's chromium, chromium-driver and python3-selenium; skips without them.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

from test_plan_cli import EBB, training
from test_report import SUMMARY

try:
    from selenium import webdriver
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service
    from selenium.webdriver.common.keys import Keys
except ImportError:
    webdriver = None

DRIVER = shutil.which("chromedriver")
OPENED_S = 2
# Pixels of a canvas that are not of its most frequent colour.
PAINTED = """
    const canvas = arguments[0], ctx = canvas.getContext("2d");
    const data = new Uint32Array(ctx.getImageData(0, 0, canvas.width, canvas.height).data.buffer);
    const counts = new Map();
    for (const pixel of data) counts.set(pixel, (counts.get(pixel) || 0) + 1);
    return data.length - Math.max(...counts.values());"""


def browser():
    options = Options()
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                     "--disable-background-networking", "--window-size=1200,900"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(service=Service(DRIVER), options=options)
    driver.execute_cdp_cmd("Network.enable", {})
    driver.execute_cdp_cmd("Network.emulateNetworkConditions", {
        "offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0})
    return driver


class Page(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        lane = {"bytes_per_second": 3e9, "fixed_ns": 1000}
        cls.write("disk.json", json.dumps({"schema": "ebb.machine/1", "name": "disk", "out": lane,
                                           "in": lane, "duplex": True}))
        cls.write("run.csv", training())
        cls.write("run.json", json.dumps(SUMMARY))
        cls.write("other.csv", training(layers=10))
        for page, inputs in (("page", ["run.csv", "run.json"]), ("two", ["run.csv", "other.csv"])):
            subprocess.run([EBB, "report", *inputs, "-o", page + ".html", "--machine",
                            "./disk.json"], check=True, cwd=cls.folder.name)
        cls.driver = browser()
        cls.addClassCleanup(cls.driver.quit)

    @classmethod
    def write(cls, name, text):
        with open(os.path.join(cls.folder.name, name), "w", encoding="utf-8") as file:
            file.write(text)

    def open(self, name, scheme="light"):
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [
            {"name": "prefers-color-scheme", "value": scheme}]})
        self.console()  # forgets what earlier pages have written
        self.driver.get(f"file://{self.folder.name}/{name}.html")

    def find(self, selector):
        return self.driver.find_element("css selector", selector)

    def count(self, selector):
        return len(self.driver.find_elements("css selector", selector))

    def window(self):
        return self.driver.execute_script(
            "const view = document.querySelector('.charts').view; return [view.from, view.to];")

    def wait_for_a_frame(self):
        self.driver.execute_async_script(
            "const done = arguments[0]; requestAnimationFrame(() => setTimeout(done, 0));")

    def painted(self, selector):
        return self.driver.execute_script(PAINTED, self.find(selector))

    def picture(self, selector):
        return self.driver.execute_script("return arguments[0].toDataURL();", self.find(selector))

    def console(self):
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def test_every_chart_has_content(self):
        self.open("page")
        self.assertEqual(self.find("html").get_attribute("data-ready"), "yes")
        self.assertEqual(self.count(".error"), 0)
        for chart in (".memory canvas", ".lanes", ".map", ".frontier canvas"):
            self.assertGreater(self.painted(chart), 500, chart)
        self.assertGreater(self.count(".blocks tbody tr"), 5)
        self.assertGreater(self.count(".history .use"), 5)
        self.assertEqual(self.count(".lost .row"), len(SUMMARY["lost"]))
        self.assertIn("Predicted, and what happened", self.find("main").text)
        self.assertIn("ebb run --budget", self.find(".forecast").text)
        self.assertIn("load", self.find("[data-role=legend]").text)
        self.assertEqual(self.console(), [])

    def test_it_opens_fast_and_asks_for_nothing(self):
        self.open("page")
        timing = self.driver.execute_script(
            "return performance.getEntriesByType('navigation')[0].loadEventEnd;")
        self.assertLess(timing, OPENED_S * 1000)
        self.assertEqual(self.driver.execute_script(
            "return performance.getEntriesByType('resource').length;"), 0)

    def test_zoom_and_pan(self):
        self.open("page")
        whole = self.window()
        self.assertEqual(whole[0], 0)
        before = self.picture(".map"), self.picture(".lanes")
        self.find("[data-zoom=in]").click()
        zoomed = self.window()
        self.assertAlmostEqual((zoomed[1] - zoomed[0]) / whole[1], 0.5, 2)
        self.wait_for_a_frame()
        self.assertNotEqual(self.picture(".map"), before[0])
        self.assertNotEqual(self.picture(".lanes"), before[1])
        plot = self.find(".memory")
        plot.send_keys(Keys.ARROW_RIGHT)
        self.assertGreater(self.window()[0], zoomed[0])
        self.find(".map").send_keys("+")
        self.assertLess(self.window()[1] - self.window()[0], zoomed[1] - zoomed[0])
        shown = self.driver.execute_script("return document.querySelector('.charts').view.to;")
        self.assertEqual(self.window()[1], shown)
        plot.send_keys("0")
        self.assertEqual(self.window(), whole)
        self.assertEqual(self.console(), [])

    def test_stack_by_size(self):
        self.open("page")
        self.find("[data-role=stack] option[value=sizes]").click()
        self.assertIn("below 16 MiB", self.find("[data-role=legend]").text)
        self.assertGreater(self.painted(".memory canvas"), 500)
        self.assertEqual(self.console(), [])

    def column(self, number):
        return [cell.text for cell in self.driver.find_elements(
            "css selector", f".blocks tbody td:nth-child({number})")]

    def test_sort_and_filter(self):
        self.open("page")
        heading = self.find(".blocks th[data-column='0'] button")
        heading.click()
        down = [int(text) for text in self.column(1)]
        self.assertEqual(down, sorted(down, reverse=True))
        heading = self.find(".blocks th[data-column='0'] button")
        heading.send_keys(Keys.ENTER)
        up = [int(text) for text in self.column(1)]
        self.assertEqual(up, sorted(up))
        self.assertEqual(self.find(".blocks th[data-column='0']").get_attribute("aria-sort"),
                         "ascending")
        self.find("[data-role=filter]").send_keys("> 4.5 MiB")
        self.assertTrue(self.column(2))
        self.assertTrue(all(float(text.split()[0]) > 4.5 for text in self.column(2)))
        self.assertLess(len(self.column(1)), len(up))

    def test_light_and_dark(self):
        colours = []
        for scheme in ("light", "dark"):
            self.open("page", scheme)
            colours.append(self.find("body").value_of_css_property("background-color"))
            self.assertEqual(self.count(".error"), 0)
        self.assertNotEqual(*colours)

    def test_two_runs(self):
        self.open("two")
        self.assertEqual(self.count(".run"), 2)
        self.assertEqual(self.count(".memory .dygraph-rangesel-fgcanvas"), 2)
        self.assertIn("Difference", self.find(".difference").text)
        self.assertEqual(self.console(), [])

    def test_damaged_data_is_said(self):
        with open(f"{self.folder.name}/page.html", encoding="utf-8") as file:
            page = file.read()
        self.write("bad.html", page.replace('"levels":[[[', '"levels":[[{['))
        self.open("bad")
        self.assertIn("cannot be shown", self.find(".error").text)
        self.assertIn("ebb run --budget", self.find(".forecast").text)
        self.write("part.html", page.replace('"lanes":{', '"lanes":0,"other":{'))
        self.open("part")
        self.assertIn("The lanes cannot be shown", self.find("main").text)
        self.assertGreater(self.painted(".map"), 500)

    def test_without_scripts(self):
        self.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
        try:
            self.open("page")
            self.assertIn("Memory over one iteration", self.find("main").text)
            self.assertTrue(self.find("svg.static polyline").get_attribute("points"))
        finally:
            self.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


if __name__ == "__main__":
    if os.environ.get("EBB_LAB") == "OFF":
        print("skipped: needs lab, to read the traces")
        sys.exit(77)
    if webdriver is None or DRIVER is None or shutil.which("chromium") is None:
        print("skipped: needs chromium")
        sys.exit(77)
    sys.exit(0 if unittest.main(exit=False).result.wasSuccessful() else 1)
