"""What trains: networks, the module around them, loss, optimizer, schedule and metrics."""
