def test_x(programs):
    pass
