"""Outbreaks: the birth-death model of tuberculosis in San Francisco, its prior and the summaries that it was compared by.

Lintusaari, Blomstedt, Sivula, Gutmann, Kaski & Corander (2019), Wellcome Open Research 4:14.
"""
