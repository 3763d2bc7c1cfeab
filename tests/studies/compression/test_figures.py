from dataclasses import replace

import pytest

from pgherd.model.analysis import Finding
from pgherd.model.result import TrialResult
from pgherd.model.run import RunRecord
from pgherd.report import drawing
from pgherd.report.drawing import FigureInputs, FigureUnavailable
from pgherd.studies.compression.figures import blocks, kinds
from pgherd.studies.compression.options import SEGMENT, CompressionOptions, DataKind
from pgherd.studies.compression.study import STUDY


def inputs(blocks=(4096, 32768, 131072), segments=5):
    options = CompressionOptions(data=(DataKind(name="pgbench", workload="pgbench"),), codecs=("lz4",), block_sizes=blocks)
    results = []
    for trial in STUDY.propose(options, []).trials:
        probe = {"size_bytes/t": 9e7, "segments/t": 90}
        for segment in range(segments):
            probe[f"raw_bytes/{segment}/t"] = SEGMENT
            for block in blocks:
                packed = SEGMENT / (4 + block / 1e5) * (1 + segment / 100)
                probe |= {f"{kind}_bytes/lz4/{block}/{segment}/t": packed for kind in ("compressed", "stored")}
        results.append(TrialResult(id="0001", trial=trial, started=0, ended=1, probe=probe))
    analysis = STUDY.analyse(options, results)
    record = RunRecord(run="r", study="compression", options=options.model_dump(mode="json"), started=0, pgherd="1", analysis=analysis)
    return FigureInputs(record, analysis, results)


def test_kinds_are_drawn_beside_the_published_ratio():
    text = str(drawing.specification(kinds(inputs()), validate=True))
    for word in ("encrypted first", '"x": 2.0', "E15's published 2:1", "'type': 'log'"):
        assert word in text


def test_ratios_are_drawn_over_the_block_size():
    figure = blocks(inputs())
    assert "larger blocks compress better" in figure.title
    assert "4 kB sectors" in str(drawing.specification(figure, validate=True))


def test_small_blocks_that_fill_sectors_badly_are_within_the_axis():
    given = inputs(blocks=(512, 4096))
    rows = [
        row | ({"ratio_4k": Finding(value=0.125, unit="ratio")} if row["block"] == "512 B" else {})
        for row in given.analysis.tables["ratios"]
    ]
    analysis = given.analysis.model_copy(update={"tables": {**given.analysis.tables, "ratios": rows}})
    specification = drawing.specification(blocks(replace(given, analysis=analysis)), validate=True)
    low, _ = specification["layer"][0]["encoding"]["y"]["scale"]["domain"]
    assert low < 0.125


def test_both_are_drawn_and_none_is_missed():
    figure, left_out = drawing.draw(inputs())
    assert [item.name for item in figure] == ["kinds", "blocks"] and left_out == {}


def test_too_little_is_said():
    with pytest.raises(FigureUnavailable, match="fewer than two block sizes"):
        blocks(inputs(blocks=(8192,)))
    with pytest.raises(FigureUnavailable, match="no data"):
        kinds(inputs(segments=0))
