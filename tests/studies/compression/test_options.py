import pytest
from pydantic import ValidationError


@pytest.mark.parametrize("blocks", [(), (3000,), (256,), (2**21,)])
def test_a_block_is_a_power_of_two_within_a_segment(options, blocks):
    with pytest.raises(ValidationError, match="a power of two from 512 bytes to 1 MB"):
        options(block_sizes=blocks)


def test_the_headline_is_the_first_codec_and_32_kb_where_there_is_one(options):
    assert options().headline == ("lz4", 32768)
    assert options(block_sizes=(4096, 8192, 16384), codecs=("zstd-3",)).headline == ("zstd-3", 8192)
