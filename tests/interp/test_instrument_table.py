from tests.interp.instrument_table import COMMAND, PAGE, page


def test_the_guide_says_what_every_instrument_does_on_every_architecture():
    assert PAGE.read_text(encoding="utf-8") == page(), f"the page is another now: {COMMAND}, and read the difference"
