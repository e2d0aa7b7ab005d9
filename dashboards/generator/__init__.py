"""What makes the Grafana dashboards: queries, panels, rows of panels, and the boards that they make up."""
