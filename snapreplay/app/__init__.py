"""The program: what it reads, how a record is applied, what comes out. Live, in replay and in tests
alike.
"""
