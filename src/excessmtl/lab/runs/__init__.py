"""What a run is and what it leaves: its configuration, its record, its folder, its summary."""
