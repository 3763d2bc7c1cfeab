from pgherd.studies.network.published import CLOUD, PREMISES, STREAMS, beside


def test_e14s_figures_stand_beside_their_numbers_of_streams():
    assert beside(1).startswith("4.8 Gbit/s (cloud), 21.4 Gbit/s (on premises)") and beside(3) is None
    assert len(STREAMS) == len(CLOUD) == len(PREMISES) and CLOUD[-1] == PREMISES[-1] == 23
