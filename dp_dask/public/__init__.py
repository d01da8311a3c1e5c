"""After release: inference, calibration and reports; sees releases and simulations, never records."""
