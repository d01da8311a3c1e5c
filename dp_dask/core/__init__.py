"""The vocabulary that every zone shares: frozen values on numpy alone, without input or output."""
